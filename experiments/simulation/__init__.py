"""Simulated clusters: their histories, what must hold of them, and whole bad days."""
