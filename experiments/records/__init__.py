"""Recorded data of a run, and of its machine."""
