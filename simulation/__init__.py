"""Simulated clusters: histories, the laws that these obey, and days of faults."""
