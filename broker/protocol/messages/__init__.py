"""Requests and responses as handlers and clients see them: one class for all versions.

A module for each API, generated from kio's schemas by ``python tests/messages.py``,
holds the request, the response and the structs in them. Each class has the fields of
every version; a comment names the versions of a field that some lack, and the default
is Kafka's.

The classes are made to be filled in: by a handler for its response, by a client for its
request. `broker.protocol.wire.codec` writes the fields that the version has. What it
reads is an object of kio's class for the version, on which the fields that the version
lacks have their defaults, too: reading costs no second object.
"""
