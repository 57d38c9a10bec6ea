"""Simulated clusters: their histories, the laws of these, and simulated bad days."""
