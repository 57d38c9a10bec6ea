"""Deadline of a request: the time until which its client waits for the response.

Kafka's requests do not contain the client's ``request.timeout.ms``, except for Produce,
whose ``timeout_ms`` has this value in all clients. It directly follows the
transactional id, so it is read without decoding the body.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.wire.header import RequestHeader

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FLEXIBLE: Final = FIRST_FLEXIBLE[_PRODUCE]
_WITH_TRANSACTIONAL_ID: Final = 3
# Lengths from here on take more than one byte.
_LONG: Final = 0x80
_LENGTH: Final = struct.Struct(">h")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_NS_PER_MS: Final = 1_000_000


def deadline_ns(header: RequestHeader, frame: bytes, received_ns: int) -> int | None:
    """Return when the client's request times out; None if unknown or without limit.

    An unreadable frame has no deadline; its handler reports the error.
    """
    if header.api_key != _PRODUCE:
        return None
    at = header.body_offset
    try:
        if header.api_version >= _FLEXIBLE:
            # A compact string starts with its length plus one, 0 for null.
            if frame[at] >= _LONG:
                return None
            at += max(frame[at], 1)
        elif header.api_version >= _WITH_TRANSACTIONAL_ID:
            at += 2 + max(_LENGTH.unpack_from(frame, at)[0], 0)
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, at)
    except (IndexError, struct.error):
        return None
    if acks == 0:
        return None
    due_ns: int = received_ns + max(timeout_ms, 0) * _NS_PER_MS
    return due_ns
