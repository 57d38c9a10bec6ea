"""Clients of a simulated cluster, which record every answer."""
