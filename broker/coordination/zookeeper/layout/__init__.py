"""Kafka's znodes: their paths, and their contents."""
