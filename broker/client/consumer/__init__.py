"""The consumer: groups, positions, and records fetched ahead."""
