"""Kafka's znodes: where they are, and what they hold."""
