"""An election under load: the delay until the old leader obeyed, and its cost."""
