"""Child processes of an experiment: bound to their parent, watched, ended."""
