"""Clients of a simulated cluster, which note whatever they are told."""
