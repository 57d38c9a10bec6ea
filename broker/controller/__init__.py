"""Kafka's controller without I/O: events in, writes and requests out."""
