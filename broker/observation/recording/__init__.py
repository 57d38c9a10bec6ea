"""The record of every request, for experiments."""
