"""Clusters simulated: their histories, what must hold of them, and whole bad days."""
