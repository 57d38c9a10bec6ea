"""Worlds of a replay: real processes, virtual time, the model, Apache Kafka."""
