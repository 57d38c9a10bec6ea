"""The records inside a batch: parsed only if the broker needs them.

The broker needs keys for compaction, timestamps for ListOffsets, both if a topic's
settings restrict them, and the coordinator's own records, which are built here. Layout
of a record (all integers zig-zag varints): length, attributes (one byte), timestamp
delta, offset delta, key length (-1: null), key, value length, value, header count, and
per header its key and value in the same form. Kafka's ``DefaultRecord``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from broker.protocol.buffer import Buffer
from broker.protocol.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    invalid,
    seal,
)
from broker.protocol.records.codecs import UNPACKED_BYTES_MAX, compress, unpacked
from broker.protocol.wire.varint import encode_varint

_VARINT_BITS_MAX: Final = 63
_SIGN: Final = 1 << 63
_INT_SIGN: Final = 1 << 31
# The length -1 as a varint.
_NO_VALUE: Final = 1
# Records that are parsed in one step: about half a millisecond.
_STEP_RECORDS: Final = 256


class Record(NamedTuple):
    """A record; ``body`` is the bytes after the offset delta (key, value, headers)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    body: bytes


KeyValue: TypeAlias = tuple[bytes, bytes | None]


class RecordHead(NamedTuple):
    """The beginning of a record."""

    offset: int
    timestamp: int
    lacks_key: bool


class MaxTimestamp(NamedTuple):
    """The largest timestamp in a batch, and the offset of the first record with it."""

    timestamp: int
    offset: int


def read_records(header: BatchHeader, batch: Buffer) -> list[Record]:
    """Return the records of a whole batch; raise CORRUPT_MESSAGE or INVALID_RECORD.

    Only for batches of this broker: few bytes of a client may contain millions of
    records.
    """
    return list(iter_records(header, batch))


def iter_records(header: BatchHeader, batch: Buffer) -> Iterator[Record]:
    """Yield the records of a whole batch; raise CORRUPT_MESSAGE or INVALID_RECORD.

    Records of a LogAppendTime batch have the batch's timestamp. Cost: unpacks and
    parses incrementally, with one record and one piece of `unpacked` in memory.
    """
    for record in records_in_steps(header, batch):
        if record is not None:
            yield record


def records_in_steps(header: BatchHeader, batch: Buffer) -> Iterator[Record | None]:
    """Yield the records of a whole batch, and None after each step.

    A step is 256 records, or the unpacking of a piece. Raises as `iter_records` does.
    """
    count = 0
    packed = memoryview(batch)[HEADER_SIZE:]
    for found in _windows(header.attributes & CODEC_MASK, packed):
        if found is None:
            yield None
            continue
        window, starts = found
        for start, end in starts:
            count += 1
            if count > header.record_count:
                raise invalid(f"more records than the {header.record_count} announced")
            try:
                yield _record(header, window, start, end)
            except IndexError:
                raise invalid("a record ends within a field") from None
            if not count % _STEP_RECORDS:
                yield None
    if count != header.record_count:
        raise invalid(f"{count} records, the header has {header.record_count}")


def plain_records(header: BatchHeader, batch: Buffer) -> list[KeyValue] | None:
    """Return the keys and values of a whole batch if all of its records are plain.

    A plain record has a key, no headers, deltas of one byte, and lengths of one or two
    bytes; its batch is not compressed. Returns None for any other batch, valid or not.
    One loop without generators costs much less than `iter_records`.
    """
    if header.attributes & CODEC_MASK:
        return None
    data, at = bytes(batch), HEADER_SIZE
    size = len(data)
    found: list[KeyValue] = []
    try:
        while at < size:
            length = data[at]
            at += 1
            if length >= 0x80:
                length = _two_bytes(length, data[at])
                at += 1
            end = at + (length >> 1)
            # The attributes are followed by both deltas and the length of the key.
            if data[at + 1] >= 0x80 or data[at + 2] >= 0x80:
                return None
            key_size = data[at + 3]
            at += 4
            if key_size >= 0x80:
                key_size = _two_bytes(key_size, data[at])
                at += 1
            key_end = at + (key_size >> 1)
            key = data[at:key_end]
            value_size = data[key_end]
            at = key_end + 1
            if value_size >= 0x80:
                value_size = _two_bytes(value_size, data[at])
                at += 1
            value: bytes | None = None
            if value_size != _NO_VALUE:
                value = data[at : at + (value_size >> 1)]
                at += value_size >> 1
            # Zig-zag: an odd length is negative.
            is_odd = (length | key_size) & 1 or (value_size & 1 and value is not None)
            if is_odd or at + 1 != end or data[at]:
                return None
            found.append((key, value))
            at = end
    except (IndexError, ValueError):
        return None
    return found if len(found) == header.record_count else None


def _two_bytes(first: int, second: int) -> int:
    """Return the unsigned varint of two bytes; raise ``ValueError`` if it is longer."""
    if second >= 0x80:
        raise ValueError
    return first & 0x7F | second << 7


def largest_timestamp(
    header: BatchHeader, batch: Buffer
) -> Generator[None, None, MaxTimestamp]:
    """Return the largest timestamp of the records in a whole batch, in steps.

    As in Kafka, the result is -1 at the batch's base offset if no record has a larger
    timestamp. Raises as `iter_records` does.
    """
    largest, offset = NO_TIMESTAMP, header.base_offset
    for head in heads_in_steps(header, batch):
        if head is None:
            yield None
        elif head.timestamp > largest:
            largest, offset = head.timestamp, head.offset
    return MaxTimestamp(largest, offset)


def heads_in_steps(header: BatchHeader, batch: Buffer) -> Iterator[RecordHead | None]:
    """Yield the heads of the records in a whole batch, and None after each step.

    Raises as `iter_records` does, but skips keys, values and headers. Memory holds one
    piece of `unpacked`, however large a record is.
    """
    count = 0
    window = b""
    # The position of the next record, which may be after the window.
    at = 0
    packed = memoryview(batch)[HEADER_SIZE:]
    for piece in unpacked(header.attributes & CODEC_MASK, packed):
        if at < len(window):
            window, at = window[at:] + piece, 0
        else:
            window, at = piece, at - len(window)
        while at < len(window):
            try:
                length, start = read_varint(window, at)
                _check_length(length)
                head, end = _head(header, window, start)
            except IndexError:
                break
            at = start + length
            count += 1
            if end > at or count > header.record_count:
                raise invalid(f"record {count} of {header.record_count} is not whole")
            yield head
            if not count % _STEP_RECORDS:
                yield None
        yield None
    if at != len(window) or count != header.record_count:
        raise invalid(f"{count} whole records, the header has {header.record_count}")


def _head(header: BatchHeader, data: bytes, position: int) -> tuple[RecordHead, int]:
    """Return the head of the record with its attributes at ``position``, and its end.

    Raises ``IndexError`` if it is cut.
    """
    timestamp_delta, position = read_varint(data, position + 1)
    offset, position = _offset(header, data, position)
    key_length, position = read_varint(data, position)
    timestamp = _timestamp(header, timestamp_delta)
    return RecordHead(offset, timestamp, key_length < 0), position


def _windows(codec: int, packed: memoryview) -> Iterator[tuple[bytes, _Bounds] | None]:
    """Yield plain bytes and the bounds of their complete records.

    Yields None before each piece except the first.
    """
    held: list[bytes] = []
    held_bytes = wanted = 0
    for number, piece in enumerate(unpacked(codec, packed)):
        if number:
            yield None
        held.append(piece)
        held_bytes += len(piece)
        if held_bytes < wanted:
            continue
        window = b"".join(held) if len(held) > 1 else piece
        bounds = _Bounds(window)
        yield window, bounds
        held, held_bytes = [window[bounds.end :]], len(window) - bounds.end
        wanted = bounds.wanted
    if held_bytes:
        raise invalid(f"{held_bytes} bytes are no whole record")


class _Bounds:
    """Iterable of (start, end) of the complete records in a window, without lengths."""

    def __init__(self, window: bytes) -> None:
        self._window = window
        # The end of the last complete record, and the bytes needed for the next one.
        self.end = 0
        self.wanted = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        window, size = self._window, len(self._window)
        while self.end < size:
            try:
                length, start = read_varint(window, self.end)
            except IndexError:
                self.wanted = size - self.end + 1
                return
            _check_length(length)
            end = start + length
            if end > size:
                self.wanted = end - self.end
                return
            self.end = end
            yield start, end


def _check_length(length: int) -> None:
    if not 1 <= length <= UNPACKED_BYTES_MAX:
        raise invalid(f"a record of {length} bytes")


def _record(header: BatchHeader, data: bytes, position: int, end: int) -> Record:
    """Return the record with its attributes at ``position``."""
    timestamp_delta, position = read_varint(data, position + 1)
    offset, body = _offset(header, data, position)
    key, position = _read_bytes(data, body)
    value, position = _read_bytes(data, position)
    # Nearly all records end with a zero, the count of headers.
    if (data[position] or position + 1 != end) and (
        _skip_headers(data, position) != end
    ):
        raise invalid("a record's length and fields disagree")
    timestamp = _timestamp(header, timestamp_delta)
    return Record(offset, timestamp, key, value, data[body:end])


def _offset(header: BatchHeader, data: bytes, position: int) -> tuple[int, int]:
    delta, position = read_varint(data, position)
    if not -_INT_SIGN <= delta < _INT_SIGN:
        raise invalid(f"an offset delta of {delta}")
    return header.base_offset + delta, position


def _timestamp(header: BatchHeader, delta: int) -> int:
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    # With a delete horizon, deltas count from that horizon, stored in this field.
    timestamp = header.base_timestamp + delta
    return timestamp if -_SIGN <= timestamp < _SIGN else as_long(timestamp)


def as_long(number: int) -> int:
    """Return a sum reduced to 64 bits, as Java's timestamps overflow.

    >>> as_long(2**63)
    -9223372036854775808
    """
    return (number + _SIGN) % (2 * _SIGN) - _SIGN


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
    """Return a zig-zag varint and the position after it; raise ``IndexError``.

    >>> read_varint(bytes([0xAC, 0x02]), 0)
    (150, 2)
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    following = data[position + 1]
    if following < 0x80:
        both = byte & 0x7F | following << 7
        return (both >> 1) ^ -(both & 1), position + 2
    # Longer varints than two bytes are rare.
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
    return encode_varint((value << 1) ^ (value >> _VARINT_BITS_MAX))


def record_body(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """Return the bytes after the offset delta of a record."""
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

    Codec, offsets, base timestamp and producer fields are taken from the header;
    length, CRC and record count are computed.
    """
    built = BatchBuilder(header)
    for offset, timestamp, body in records:
        built.add(offset, timestamp, body)
    return built.build()


class BatchBuilder:
    """Builder of a batch, record by record; see `build_batch`."""

    def __init__(self, header: BatchHeader) -> None:
        self._header = header
        self._plain = bytearray()
        self.record_count = 0

    def add(self, offset: int, timestamp: int, body: bytes) -> None:
        """Add a record; ``body`` is the bytes after its offset delta."""
        header = self._header
        content = (
            b"\0"
            + write_varint(as_long(timestamp - header.base_timestamp))
            + write_varint(offset - header.base_offset)
            + body
        )
        self._plain += write_varint(len(content))
        self._plain += content
        self.record_count += 1

    def build(self) -> bytes:
        """Return the batch."""
        header = self._header
        packed = compress(header.attributes & CODEC_MASK, self._plain)
        count = self.record_count
        head = HEADER.pack(*header._replace(batch_length=0, crc=0, record_count=count))
        return bytes(seal(bytearray(head + packed)))


def new_batch(
    records: Sequence[tuple[int, bytes | None, bytes | None]],
    *,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """Return a producer's batch of (timestamp, key, value) triples.

    ``attributes`` are the attributes other than the codec.

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
        attributes=attributes | codec,
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
