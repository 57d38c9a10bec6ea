"""Brokers in virtual time: a clock that jumps, seeded choices, a network in memory."""
