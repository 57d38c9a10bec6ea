"""Hand-written codec of the simplest Produce: one batch for one partition.

`decode_single_produce` supports one form: no transactional id, one topic, one
partition, no tagged fields. For any other frame it returns ``None``, and kio reads the
frame. It builds no objects, and its batch is a view of the frame instead of a copy.
Tests compare it with kio in every version. `encode_single_produce` encodes the response
without an error by one ``struct.pack`` between constant bytes of the topic.

The form, non-flexible (3 to 8) and flexible (9 to 13; 13 has an id for the name)::

    transactionalId null · acks 2 · timeoutMs 4 · topics 1 · name · partitions 1 ·
    index 4 · records bytes · [no tags, no tags, no tags]
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

from broker.protocol.wire.hot import ProducePartition, encode_produce_response

_BEFORE_NAME: Final = Struct(">hhiih")
_BEFORE_RECORDS: Final = Struct(">iii")
_FLEXIBLE_BEFORE_TOPIC: Final = Struct(">BhiBB")
_ID_SINCE: Final = 13
_ID_SIZE: Final = 16
_FLEXIBLE_BEFORE_RECORDS: Final = Struct(">BiB")
_FRAME: Final = Struct(">ii")
_OUTCOME_V3: Final = Struct(">ihqq")
_OUTCOME_V5: Final = Struct(">ihqqq")
_NULL: Final = -1
# First byte of a compact array of one item, and of a compact string of 126 bytes.
_COMPACT_ONE: Final = 2
_COMPACT_SHORT: Final = 127
_NAMES_KEPT: Final = 1024

# acks, time-out in ms, the topic by name or id, partition index, and the records as a
# view of the frame.
SingleProduce: TypeAlias = tuple[int, int, str | UUID, int, memoryview]


def decode_single_produce(
    version: int, frame: bytes, offset: int
) -> SingleProduce | None:
    """Return the Produce in ``frame``, whose body starts at ``offset``; None: unknown.

    As with kio, bytes after the body are ignored.
    """
    size = len(frame)
    if version > 8:
        return _flexible(frame, offset, size, by_id=version >= _ID_SINCE)
    start = offset + 14
    if size < start:
        return None
    null, acks, timeout_ms, topics, length = _BEFORE_NAME.unpack_from(frame, offset)
    at = start + length
    if null != _NULL or topics != 1 or length < 0 or size < at + 12:
        return None
    partitions, index, length = _BEFORE_RECORDS.unpack_from(frame, at)
    at += 12
    end = at + length
    if partitions != 1 or length <= 0 or size < end:
        return None
    try:
        topic = frame[start : at - 12].decode()
    except UnicodeDecodeError:
        return None
    return acks, timeout_ms, topic, index, memoryview(frame)[at:end]


def _flexible(
    frame: bytes, offset: int, size: int, *, by_id: bool
) -> SingleProduce | None:
    """Read versions 9 and later, whose lengths are varints of the length plus one."""
    start = offset + 9
    if size < start:
        return None
    null, acks, timeout_ms, topics, length = _FLEXIBLE_BEFORE_TOPIC.unpack_from(
        frame, offset
    )
    if by_id:
        # The byte read as the length is the first byte of the id.
        start -= 1
        at = start + _ID_SIZE
    elif 0 < length <= _COMPACT_SHORT:
        at = start + length - 1
    else:
        return None
    if null or topics != _COMPACT_ONE or size < at + 6:
        return None
    partitions, index, length = _FLEXIBLE_BEFORE_RECORDS.unpack_from(frame, at)
    if partitions != _COMPACT_ONE:
        return None
    name_end, at = at, at + 6
    shift = 7
    last = length
    length &= 127
    while last > 127:
        if at == size or shift > 28:
            return None
        last = frame[at]
        at += 1
        length |= (last & 127) << shift
        shift += 7
    end = at + length - 1
    # Tagged fields of the partition, the topic and the request: none.
    if length < 2 or frame[end : end + 3] != b"\0\0\0":
        return None
    topic = frame[start:name_end]
    try:
        named = UUID(bytes=topic) if by_id else topic.decode()
    except UnicodeDecodeError:
        return None
    return acks, timeout_ms, named, index, memoryview(frame)[at:end]


def encode_single_produce(
    version: int,
    correlation_id: int,
    topic: str | UUID,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """Return the frame of a ProduceResponse for one appended batch."""
    size, before, after = _around(version, topic)
    if version >= 5:
        outcome = _OUTCOME_V5.pack(
            index, 0, base_offset, log_append_time_ms, log_start_offset
        )
    else:
        outcome = _OUTCOME_V3.pack(index, 0, base_offset, log_append_time_ms)
    return _FRAME.pack(size, correlation_id) + before + outcome + after


@lru_cache(maxsize=_NAMES_KEPT)
def _around(version: int, topic: str | UUID) -> tuple[int, bytes, bytes]:
    """Return the frame's size, and the bytes before and after the outcome."""
    outcome = _OUTCOME_V5 if version >= 5 else _OUTCOME_V3
    marked = ProducePartition(*((-1,) * 5))
    frame = encode_produce_response(version, 0, [(topic, [marked])])
    head = _FRAME.size
    at = frame.index(outcome.pack(*marked[: 5 if version >= 5 else 4]), head)
    return len(frame) - 4, frame[head:at], frame[at + outcome.size :]
