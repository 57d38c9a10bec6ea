"""The records inside a batch: parsed only where the broker must know them.

That is: keys for compaction, time stamps for ListOffsets, both where a topic's settings
restrict them; and the coordinator's own records, which are built here. Layout of a
record (all integers zig-zag varints): length, attributes (one byte), timestamp delta,
offset delta, key length (-1: null), key, value length, value, header count, and per
header its key and value the same way. Kafka's ``DefaultRecord``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.log.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    invalid,
    seal,
)
from broker.log.codecs import compress, decompress
from broker.log.storage import Buffer

_VARINT_BITS_MAX: Final = 63


class Record(NamedTuple):
    """A record; ``body`` is what follows the offset delta (key, value, headers)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    body: bytes


def read_records(header: BatchHeader, batch: Buffer) -> list[Record]:
    """Return the records of a whole batch; raise CORRUPT_MESSAGE or INVALID_RECORD.

    A time stamp of a LogAppendTime batch is the batch's.
    """
    data = decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_SIZE:])
    records = list(_parse(header, data))
    if len(records) != header.record_count:
        raise invalid(f"{len(records)} records, the header has {header.record_count}")
    return records


def _parse(header: BatchHeader, data: bytes) -> Iterator[Record]:
    stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    # With a delete horizon the field holds that, and deltas still count from it.
    base_timestamp = header.base_timestamp
    position = 0
    try:
        while position < len(data):
            length, position = read_varint(data, position)
            end = position + length
            if length < 1 or end > len(data):
                raise invalid(f"a record of {length} bytes")
            timestamp_delta, position = read_varint(data, position + 1)
            offset_delta, body = read_varint(data, position)
            key, position = _read_bytes(data, body)
            value, position = _read_bytes(data, position)
            if _skip_headers(data, position) != end:
                raise invalid("a record's length and fields disagree")
            yield Record(
                header.base_offset + offset_delta,
                base_timestamp + timestamp_delta if stamped is None else stamped,
                key,
                value,
                data[body:end],
            )
            position = end
    except IndexError:
        raise invalid("a record ends within a field") from None


def _skip_headers(data: bytes, position: int) -> int:
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data):
        raise invalid(f"{count} headers")
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise invalid("a header without a key")
        _, position = _read_bytes(data, position)
    return position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise invalid(f"a field of {size} bytes")
    return data[position:end], end


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zig-zag varint and the position behind it; raise ``IndexError``.

    >>> read_varint(bytes([0xAC, 0x02]), 0)
    (150, 2)
    """
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise invalid("a varint of more than 64 bits")


def write_varint(value: int) -> bytes:
    """Return a zig-zag varint.

    >>> write_varint(150).hex(), write_varint(-1).hex()
    ('ac02', '01')
    """
    rest = (value << 1) ^ (value >> _VARINT_BITS_MAX)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record_body(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """Return what follows the offset delta of a record."""
    pieces = [_bytes_field(key), _bytes_field(value), write_varint(len(headers))]
    for name, content in headers:
        pieces += (_bytes_field(name.encode()), _bytes_field(content))
    return b"".join(pieces)


def _bytes_field(content: bytes | None) -> bytes:
    if content is None:
        return write_varint(-1)
    return write_varint(len(content)) + content


def build_batch(
    header: BatchHeader, records: Iterable[tuple[int, int, bytes]]
) -> bytes:
    """Return a batch of (offset, timestamp, body) under a header.

    Codec, offsets, base timestamp and producer fields are the header's; length, CRC and
    record count are computed.
    """
    pieces: list[bytes] = []
    for offset, timestamp, body in records:
        content = (
            b"\0"
            + write_varint(timestamp - header.base_timestamp)
            + write_varint(offset - header.base_offset)
            + body
        )
        pieces += (write_varint(len(content)), content)
    packed = compress(header.attributes & CODEC_MASK, b"".join(pieces))
    count = len(pieces) // 2
    head = HEADER.pack(*header._replace(batch_length=0, crc=0, record_count=count))
    return bytes(seal(bytearray(head + packed)))


def new_batch(
    records: Sequence[tuple[int, bytes | None, bytes | None]],
    *,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return a batch as a producer sends it, of (timestamp, key, value) triples.

    >>> len(new_batch([(0, None, b"value")]))
    73
    """
    assert records, "a batch has a record"
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=len(records) - 1,
        base_timestamp=records[0][0],
        max_timestamp=max(record[0] for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return build_batch(
        header,
        (
            (number, timestamp, record_body(key, value))
            for number, (timestamp, key, value) in enumerate(records)
        ),
    )
