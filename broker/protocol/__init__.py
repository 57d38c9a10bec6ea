"""Kafka's formats, which brokers and clients share: errors, messages, records.

Nothing here depends on a broker or a client.
"""
