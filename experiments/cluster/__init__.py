"""A load on several brokers: clients, a controller, the outcome of each attempt."""
