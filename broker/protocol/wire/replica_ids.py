"""The replica id of a request, read from its frame before the body is decoded.

Fetch, ListOffsets and OffsetForLeaderEpoch are sent by consumers and by followers. A
follower has a replica id of 0 or more. It is the first field of the body or, in
Fetch from version 15 on (KIP-903), in the last tagged field of the body. Each function
returns `CONSUMER` if a frame has no replica id.

The tagged field is recognised in the form written by brokers: as the only tagged field,
without tagged fields of its own, hence as the last 16 bytes of the frame. Other forms
are legal; the handler of Fetch finds these in the decoded body. A consumer's frame ends
in the same form only if its last forgotten topic id, or its rack, contains the three
constant bytes at their position: 1 in 16 million of random topic ids.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.protocol.wire.header import RequestHeader

CONSUMER: Final = -1
_REPLICA_ID: Final = struct.Struct(">i")
# One tagged field, number 1, of 13 bytes: replica id (int32), replica epoch (int64), no
# tagged fields of its own.
_REPLICA_STATE: Final = struct.Struct(">BBBiqB")
_FETCH_WITH_STATE: Final = 15
_EPOCHS_WITH_ID: Final = 3


def of_fetch(header: RequestHeader, frame: bytes) -> int:
    """Return the replica id of a Fetch of any version."""
    if header.api_version < _FETCH_WITH_STATE:
        return of_list_offsets(header, frame)
    at = len(frame) - _REPLICA_STATE.size
    if at < header.body_offset:
        return CONSUMER
    count, tag, size, replica_id, _, tagged = _REPLICA_STATE.unpack_from(frame, at)
    if (count, tag, size, tagged) != (1, 1, 13, 0):
        return CONSUMER
    found: int = replica_id
    return found


def of_list_offsets(header: RequestHeader, frame: bytes) -> int:
    """Return the replica id of a ListOffsets of any version, its first field."""
    if len(frame) < header.body_offset + _REPLICA_ID.size:
        return CONSUMER
    replica_id: int = _REPLICA_ID.unpack_from(frame, header.body_offset)[0]
    return replica_id


def of_offset_for_leader_epoch(header: RequestHeader, frame: bytes) -> int:
    """Return the replica id of an OffsetForLeaderEpoch; version 2 has none."""
    if header.api_version < _EPOCHS_WITH_ID:
        return CONSUMER
    return of_list_offsets(header, frame)
