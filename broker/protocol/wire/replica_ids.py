"""The replica id of a request, read from its frame before the body is decoded.

Fetch, ListOffsets and OffsetForLeaderEpoch are sent by consumers and by followers; a
replica id of 0 or more is a follower's. It begins the body, or, in Fetch from version
15 on (KIP-903), stands in the last tagged field of the body. Each function returns
`CONSUMER` where a frame has no replica id.

The tagged field is recognised in the form in which brokers write it: as the only one,
without tagged fields of its own, hence as the last 16 bytes of the frame. Other forms
are legal; the handler of Fetch finds these in the decoded body. A consumer's frame ends
in the same way only where the last topic id that it forgets, or its rack, holds the
three constant bytes in the right place: 1 in 16 million of random topic ids.
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
    """Return the replica id of a ListOffsets of any version: it begins the body."""
    if len(frame) < header.body_offset + _REPLICA_ID.size:
        return CONSUMER
    replica_id: int = _REPLICA_ID.unpack_from(frame, header.body_offset)[0]
    return replica_id


def of_offset_for_leader_epoch(header: RequestHeader, frame: bytes) -> int:
    """Return the replica id of an OffsetForLeaderEpoch; version 2 has none."""
    if header.api_version < _EPOCHS_WITH_ID:
        return CONSUMER
    return of_list_offsets(header, frame)
