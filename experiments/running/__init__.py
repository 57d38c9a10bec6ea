"""Running of experiments: trials in order, repeated if needed, and their files."""
