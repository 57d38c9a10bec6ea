"""Experiments run: trials in order, repeated where needed, written to a directory."""
