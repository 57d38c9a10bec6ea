"""Experiments run: cells in order, repeated where needed, written to a directory."""
