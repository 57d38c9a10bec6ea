"""Decisions in the cluster, and the requests by which they reach a broker."""
