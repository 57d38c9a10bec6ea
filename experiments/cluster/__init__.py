"""A load on several brokers: its clients, a controller, and what became of each try."""
