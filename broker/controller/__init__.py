"""Kafka's controller as a pure core: events in, writes and requests out."""
