"""A Kafka client on Trio: producer and consumer, for any broker.

`open_producer` and `open_consumer` are all that a program needs; docs/trio-client.md
shows how. The client shares the wire format and the log's record format with the
broker, and no other part of it; the broker knows nothing of the client.
"""
