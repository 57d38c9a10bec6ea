"""Quotas of clients: the entities that have them, the rates, and the throttle times."""
