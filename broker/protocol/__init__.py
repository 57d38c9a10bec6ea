"""Kafka's formats, which brokers and clients share: errors, messages, records.

Nothing here knows a broker or a client.
"""
