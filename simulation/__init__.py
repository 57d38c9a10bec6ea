"""Simulated clusters: their histories, the laws that hold of them, and bad days."""
