"""An election under load: the delay until the old leader stepped down, and its cost."""
