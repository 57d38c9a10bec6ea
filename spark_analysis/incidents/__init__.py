"""An election under load: how long until the old leader obeyed, and what it cost."""
