"""Figures drawn from ``results.json``."""
