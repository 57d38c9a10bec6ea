"""Requests and responses as handlers and clients see them: one class for all versions.

Each API has a module, generated from kio's schemas by ``python tests/messages.py``,
with the request, the response and their structs. Each class has the fields of every
version. A comment states the versions of a field that is missing in some; its default
is that of Kafka.

Handlers instantiate the classes of responses, clients those of requests.
`broker.protocol.wire.codec` writes the fields of the version. Reading returns an object
of kio's class for the version, on which missing fields have their defaults, so that no
second object is needed.
"""
