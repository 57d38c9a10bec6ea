"""The request header, parsed by hand because every request has one.

Versions: 0 has no client id (ControlledShutdown v0 only), 1 has one, 2 adds tagged
fields after it. The client id has a two-byte length also in version 2, although all
other strings of flexible versions are compact (KIP-482). A null client id is read as
the empty string, as in Kafka.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire.varint import decode_varint

_FIXED: Final = struct.Struct(">hhi")
_WITH_LENGTH: Final = struct.Struct(">hhih")
_NEW: Final = tuple.__new__
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)


class RequestHeader(NamedTuple):
    """Header fields of a request, and the position of its body in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body_offset: int


def parse_request_header(frame: bytes | memoryview) -> RequestHeader:
    """Return the header of ``frame``, a request without its size prefix.

    Any version is accepted, since ApiVersions responds to unknown versions. Raises
    `MalformedFrame` on an unknown API and on bytes that are not a header. Cost: O(1),
    except for tagged fields.
    """
    try:
        key, version, correlation_id, length = _WITH_LENGTH.unpack_from(frame)
        first_flexible = FIRST_FLEXIBLE[key]
    except struct.error:
        return _without_client_id(frame)
    except IndexError:
        raise MalformedFrame(f"api key {key}, expected 0..{_last_key()}") from None
    if key < 0 or version < 0:
        raise MalformedFrame(f"api key {key}, version {version}: negative")
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return _without_client_id(frame)
    # A null client id, of length -1, is read as an empty one.
    end = 10 + length if length > 0 else 10
    if length < -1 or end > len(frame):
        raise MalformedFrame(f"client id of {length} bytes in {len(frame)}")
    try:
        client_id = str(frame[10:end], "utf-8")
    except UnicodeDecodeError:
        raise MalformedFrame("client id is not UTF-8") from None
    if version >= first_flexible:
        # Usual case: no tags in the header, one zero byte.
        if end < len(frame) and frame[end] == 0:
            end += 1
        else:
            end = skip_tagged_fields(frame, end)
    # `tuple.__new__`: the constructor of the NamedTuple is a sixth of the whole cost.
    return _NEW(RequestHeader, (key, version, correlation_id, client_id, end))


def skip_tagged_fields(frame: bytes | memoryview, offset: int) -> int:
    """Return the offset after the tagged fields that start at ``offset``."""
    try:
        count, offset = decode_varint(frame, offset)
        for _ in range(count):
            _, offset = decode_varint(frame, offset)
            size, offset = decode_varint(frame, offset)
            offset += size
            if offset > len(frame):
                message = f"tagged field of {size} bytes ends beyond the frame"
                raise MalformedFrame(message)
    except IndexError:
        raise MalformedFrame("varint ends beyond the frame") from None
    return offset


def _without_client_id(frame: bytes | memoryview) -> RequestHeader:
    """Read a version 0 header, that of ControlledShutdown v0."""
    try:
        key, version, correlation_id = _FIXED.unpack_from(frame)
    except struct.error:
        raise MalformedFrame(f"header of {len(frame)} bytes, expected 8") from None
    if key != _CONTROLLED_SHUTDOWN or version != 0:
        raise MalformedFrame(f"header of {len(frame)} bytes, expected 10")
    return RequestHeader(key, version, correlation_id, "", 8)


def _last_key() -> int:
    return len(FIRST_FLEXIBLE) - 1
