"""A Kafka client on Trio: producer and consumer, for any broker.

The entry points are `open_producer` and `open_consumer`; docs/trio-client.md has
examples. The client shares only the wire format and the log's record format with the
broker.
"""
