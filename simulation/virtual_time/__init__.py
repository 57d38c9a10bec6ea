"""Virtual time for brokers: a clock that jumps, seeded choices, a network in memory."""
