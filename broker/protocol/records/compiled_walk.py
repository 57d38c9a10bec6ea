"""Validation of records of any sizes by the compiled code of aiokafka.

A short loop finds the ends of records; aiokafka's decoder then reads exactly those
bytes. The decoder rejects records of a wrong length, null keys of headers, and bytes
after the last record. It accepts varints with more bytes or bits than their type has.
Therefore the sizes of the decoded records in their shortest encoding must sum to the
bytes read: each record takes at least that many bytes, so no record may take more.

Kafka's clients write shortest encodings. Records that fail here are validated in
Python, which is decisive and costs 3.5 times as much for records of 100 bytes.

In a truncated record with headers, the decoder may read up to twenty bytes beyond its
buffer. The buffer is therefore followed by zeros; a record that extends into them is
never valid.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import Final, NamedTuple

from aiokafka.errors import CorruptRecordException
from aiokafka.record._crecords.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from broker.protocol.records.batch import HEADER, MAGIC

# Bytes decoded at once: half of them may be headers, at about 100 ns each.
PIECE_BYTES: Final = 1 << 15
# Largest number of headers in a piece; more are validated in steps.
_HEADERS_MAX: Final = 1024
_ZEROS: Final = bytes(64)
# Base timestamp of a piece. aiokafka returns None for the timestamp -1, and timestamps
# above 64 bits wrap around to negative ones.
_BASE_TIME: Final = 1 << 40
_UNREADABLE: Final = (
    CorruptRecordException,
    UnicodeDecodeError,
    # Raised for lengths near 2^63, which overflow in the decoder's check.
    MemoryError,
    OverflowError,
)

_offset_of: Final = attrgetter("offset")
_time_of: Final = attrgetter("timestamp")
_key_of: Final = attrgetter("key")
_value_of: Final = attrgetter("value")
_headers_of: Final = attrgetter("headers")


def _measured() -> DefaultRecordBatchBuilder:
    """Return an encoder for computing sizes; its first record sets the base time."""
    encoder = DefaultRecordBatchBuilder(MAGIC, 0, 0, -1, -1, -1, sys.maxsize)
    encoder.append(0, _BASE_TIME, None, None, [])
    return encoder


_size_of: Final = _measured().size_in_bytes


class Piece(NamedTuple):
    """Valid records: number, bytes, extreme timestamp deltas, and any missing key."""

    records: int
    size: int
    smallest: int
    largest: int
    lacks_key: bool


_NOTHING: Final = Piece(0, 0, 0, 0, lacks_key=False)


def walk_piece(data: bytes, at: int, first_delta: int, limit: int) -> Piece | None:
    """Return the valid records from ``at`` on, at most ``limit``, within `PIECE_BYTES`.

    The first record must have offset delta ``first_delta``. A piece without records is
    inconclusive. None means that no record is completely within the piece.
    """
    count, end = _whole_records(data, at, limit)
    if not count:
        return None
    head = HEADER.pack(0, 0, 0, MAGIC, 0, 0, 0, _BASE_TIME, 0, -1, -1, -1, count)
    padded = b"".join((head, data[at:end], _ZEROS))
    try:
        records = list(DefaultRecordBatch(memoryview(padded)[: -len(_ZEROS)]))
    except _UNREADABLE:
        return _NOTHING
    headers = list(map(_headers_of, records))
    offsets = list(map(_offset_of, records))
    times = list(map(_time_of, records))
    if (
        sum(map(len, headers)) > _HEADERS_MAX
        or offsets != list(range(first_delta, first_delta + count))
        or None in times
        or min(times) < 0
    ):
        return _NOTHING
    keys = list(map(_key_of, records))
    values = map(_value_of, records)
    size = end - at
    if sum(map(_size_of, offsets, times, keys, values, headers)) != size:
        return _NOTHING
    smallest, largest = min(times) - _BASE_TIME, max(times) - _BASE_TIME
    return Piece(count, size, smallest, largest, None in keys)


def _whole_records(data: bytes, at: int, limit: int) -> tuple[int, int]:
    """Return the number of complete records in a piece, and the end of the last.

    A record whose length takes three bytes ends the piece.
    """
    stop = min(at + PIECE_BYTES, len(data))
    count = 0
    while count < limit and at + 1 < stop:
        code = data[at]
        if code < 0x80:
            end = at + 1 + (code >> 1)
        else:
            high = data[at + 1]
            if high >= 0x80:
                break
            end = at + 2 + ((high << 7 | code & 0x7F) >> 1)
        if end > stop:
            break
        at = end
        count += 1
    return count, at
