"""Validation of all records of a produced batch, before the batch is appended.

Kafka's ``DefaultRecordBatch`` iterators under ``LogValidator``. A batch is valid if its
codec's stream is complete and contains exactly the number of records in the header.
Each record must have its stated length, consecutive offset deltas from 0 and non-null
header keys, and no bytes may follow the last record. Every client that follows the
format reads a valid batch alike. As in Kafka, attributes of a record and header keys
may contain any bytes.

Validation computes the extreme timestamps and whether a key is missing. It works in
steps, as a few kilobytes may unpack to gigabytes. Memory holds one piece of `unpacked`
and one record, or only a piece of a record above `_WINDOW_BYTES`. Records of equal
layout are validated together (`uniform_runs`), others in pieces by compiled code
(`compiled_walk`).

Validation is stricter than in Kafka 3.9, which stores the following batches although
some or all consumers fail on them: an offset delta out of order (Kafka checks it in
compressed batches only), a compressed record whose length and fields disagree, a varint
with more bits than its type, bytes after a codec's stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from broker.protocol.buffer import Buffer
from broker.protocol.errors import KafkaError
from broker.protocol.records.batch import CODEC_MASK, HEADER_SIZE, invalid
from broker.protocol.records.batch_records import write_varint
from broker.protocol.records.codecs import (
    NONE,
    WINDOW_BYTES_MAX,
    check_stream,
    large_window,
    unpacked,
)
from broker.protocol.records.compiled_walk import walk_piece
from broker.protocol.records.uniform_runs import RUN_MAX, Layout, run_like

# Work units per step; a unit is one record parsed in Python, about a microsecond.
STEP_UNITS: Final = 512
_RECORDS_PER_UNIT: Final = 32
_COMPILED_PER_UNIT: Final = 2
_UNPACKED_BYTES_PER_UNIT: Final = 512
_PLAIN_BYTES_PER_UNIT: Final = 1 << 14
_UNITS_PER_PIECE: Final = 4
# A record that is larger or has more headers is parsed field by field.
_WINDOW_BYTES: Final = 1 << 16
_HEADERS_AT_ONCE: Final = 64
# Number of record sizes whose encoded lengths are cached.
_SIZES_KEPT: Final = 4096
# Batch header and, of a record without a key, all bytes before its value.
_FIRST_BYTES: Final = Struct(f"{HEADER_SIZE}x10s")
_FIRST_BYTES_END: Final = _FIRST_BYTES.size
# Records compared in the first attempt of a run, and the least length of a run.
_FIRST_TRY: Final = 256
_RUN_MIN: Final = 16
# Records without a run before pieces are tried; a run also ends where a delta grows.
_UNLIKE_RECORDS: Final = 3
# Records to skip after an unsuccessful piece, and the least cost of a piece and a run.
_WAIT_RECORDS: Final = 64
_PIECE_UNITS: Final = 16
_RUN_UNITS: Final = 4
_PIECE_RECORDS_MAX: Final = 512
# Largest number of bytes of a varint, and the largest value of its last byte.
_INT_BYTES: Final = 5
_INT_LAST: Final = 0x0F
_LONG_BYTES: Final = 10
_LONG_LAST: Final = 0x01


class Contents(NamedTuple):
    """The extreme timestamp deltas of a batch, and whether a record has no key."""

    smallest_delta: int
    largest_delta: int
    lacks_key: bool


def contents_of(
    attributes: int, record_count: int, batch: Buffer
) -> Generator[Callable[[], None] | None, None, Contents]:
    """Validate the records of a whole batch, in steps; raise INVALID_RECORD.

    ``attributes`` and ``record_count`` (above zero) are those of the header. Yields
    `large_window` before unpacking with a window above `WINDOW_BYTES_MAX`.
    """
    codec = attributes & CODEC_MASK
    packed = memoryview(batch)[HEADER_SIZE:]
    try:
        if (yield from check_stream(codec, packed)) > WINDOW_BYTES_MAX:
            yield large_window
        return (yield from _Walk(codec, packed, record_count).run())
    except KafkaError as error:
        # Not CORRUPT_MESSAGE, which producers retry: by the CRC, the batch arrived as
        # sent.
        raise invalid(error.message or "records do not unpack") from error


_NEW_FIELDS: Final = tuple.__new__


def is_one_record(batch: Buffer) -> bool:
    """Return whether a plain batch has one valid record, at the base timestamp.

    Recognises the form of most small batches: no headers, a key of less than 64 bytes
    or none. For any other form the result is False, which is inconclusive.
    """
    size = len(batch)
    if size < _FIRST_BYTES_END or batch[-1]:
        return False
    (first,) = _FIRST_BYTES.unpack_from(batch)
    if first.startswith(_keyless_start(size - HEADER_SIZE)):
        return True
    start = _record_start(size - HEADER_SIZE)
    code = first[len(start)]
    if not first.startswith(start) or code & 1 or code >= 0x80:
        return False
    value_length_at = HEADER_SIZE + len(start) + 1 + (code >> 1)
    length = _last_field_length(size - value_length_at)
    value_at = value_length_at + len(length)
    return bytes(batch[value_length_at:value_at]) == length


@lru_cache(maxsize=_SIZES_KEPT)
def _keyless_start(size: int) -> bytes:
    """Return the first bytes of a first record of ``size`` bytes without a key."""
    start = _record_start(size) + b"\1"
    return start + _last_field_length(size - len(start))


@lru_cache(maxsize=_SIZES_KEPT)
def _record_start(size: int) -> bytes:
    """Return length, attributes and deltas of a first record of ``size`` bytes."""
    return _length_before(size) + bytes(3)


@lru_cache(maxsize=_SIZES_KEPT)
def _last_field_length(size: int) -> bytes:
    """Return the length of a value that ends a record without headers."""
    return _length_before(size - 1)


def _length_before(size: int) -> bytes:
    """Return the varint of a length that takes ``size`` bytes with its content.

    Returns no bytes if no such varint exists.
    """
    for width in range(1, _INT_BYTES + 1):
        varint = write_varint(max(size - width, 0))
        if len(varint) == width:
            return varint
    return b""


class _Walk:
    """Validation in progress: a window of plain bytes, and a record's position."""

    def __init__(self, codec: int, packed: memoryview, count: int) -> None:
        self._pieces = unpacked(codec, packed)
        self._bytes_per_unit = (
            _PLAIN_BYTES_PER_UNIT if codec == NONE else _UNPACKED_BYTES_PER_UNIT
        )
        self._count = count
        self._window = b""
        self._at = 0
        self._number = 0
        self._units = STEP_UNITS
        # The first record for which a run is tried, and the number to compare.
        self._try_from = 0
        self._try_records = _FIRST_TRY
        self._smallest, self._largest = 1 << 64, -1 << 64
        self._lacks_key = False
        # Records without a run after them, since the last run.
        self._unlike = 0
        # Bytes of a large record after the position.
        self._left = 0

    def run(self) -> Generator[None, None, Contents]:
        while self._number < self._count:
            wanted = self._scan()
            if wanted > _WINDOW_BYTES:
                yield from self._walk_large_record()
            elif wanted and not (yield from self._fill()):
                raise invalid(f"{self._number} records, the header has {self._count}")
            elif self._units <= 0:
                yield from self._step()
        while self._at == len(self._window):
            if not (yield from self._fill()):
                return Contents(self._smallest, self._largest, self._lacks_key)
        raise invalid(f"more bytes than {self._count} records")

    def _step(self) -> Generator[None, None, None]:
        self._units = STEP_UNITS
        yield None

    def _fill(self) -> Generator[None, None, bool]:
        """Add a piece to the window; False at the end."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        rest = self._window[self._at :]
        self._window = rest + piece if rest else piece
        self._at = 0
        self._units -= _UNITS_PER_PIECE + len(piece) // self._bytes_per_unit
        if self._units <= 0:
            yield from self._step()
        return True

    def _scan(self) -> int:
        """Validate the complete records in the window, within the units of the step.

        Returns the known number of bytes that the next record needs in the window.
        Returns 0 if the step has ended or the last record has been validated.
        """
        data, size, count = self._window, len(self._window), self._count
        at, number = self._at, self._number
        wanted = 0
        try:
            while number < count and self._units > 0:
                lead = length = data[at]
                body = at + 1
                if lead >= 0x80:
                    length, body = _varint(data, at)
                else:
                    length = lead >> 1 ^ -(lead & 1)
                end = body + length
                if end > size:
                    wanted = end - at
                    break
                fields = _fields(data, body + 1, number)
                headers_at = fields.headers_at
                if data[headers_at] or headers_at + 1 != end:
                    headers, headers_at = _varint(data, headers_at)
                    _check_headers(headers, size - headers_at)
                    if headers > _HEADERS_AT_ONCE:
                        wanted = _WINDOW_BYTES + 1
                        break
                    self._units -= headers
                    if _after_headers(data, headers_at, headers) != end:
                        raise invalid(
                            f"record {number} differs in length from its length field"
                        )
                    headers_at = end
                self._note(fields)
                number += 1
                # With headers, ``headers_at`` now is the record's end.
                if number < count and end < size and number >= self._try_from:
                    shape = None
                    if headers_at < end and data[end] == lead:
                        shape = _layout(at, body, fields, end)
                    number, at = self._walk_more(data, end, number, shape)
                else:
                    at = end
        except IndexError:
            wanted = self._reach(data, at, number)
        self._at, self._number = at, number
        return wanted

    def _note(self, fields: _Fields) -> None:
        self._units -= 1
        if fields.delta < self._smallest:
            self._smallest = fields.delta
        if fields.delta > self._largest:
            self._largest = fields.delta
        if fields.key_length < 0:
            self._lacks_key = True

    def _walk_more(
        self, data: bytes, at: int, number: int, shape: Layout | None
    ) -> tuple[int, int]:
        """Validate records together from ``at``; return the next number and position.

        ``shape`` is the layout of the previous record, if the next may have the same.
        """
        found = self._run_like(data, at, number, shape) if shape is not None else 0
        if found >= _RUN_MIN:
            self._unlike = 0
        elif self._unlike < _UNLIKE_RECORDS:
            self._unlike += 1
        else:
            return self._walk_pieces(data, at, number)
        return number + found, at + found * (shape.step if shape is not None else 0)

    def _run_like(self, data: bytes, at: int, number: int, shape: Layout) -> int:
        """Validate records from ``at`` on with the previous layout.

        Return their number.
        """
        limit = min(self._count - number, self._try_records)
        run = run_like(data, at - shape.step, shape, number, limit)
        self._units -= run.records // _RECORDS_PER_UNIT + _RUN_UNITS
        if run.records:
            self._smallest = min(self._smallest, run.smallest)
            self._largest = max(self._largest, run.largest)
        self._try_records = RUN_MAX if run.records >= _RUN_MIN else _FIRST_TRY
        return run.records

    def _walk_pieces(self, data: bytes, at: int, number: int) -> tuple[int, int]:
        """Validate records of any sizes from ``at`` on, within the units of the step.

        Returns the number and the position of the next record.
        """
        while self._units > 0 and number < self._count and at < len(data):
            limit = min(self._count - number, _PIECE_RECORDS_MAX)
            piece = walk_piece(data, at, number, limit)
            if piece is None:
                break
            self._units -= piece.records // _COMPILED_PER_UNIT + _PIECE_UNITS
            if not piece.records:
                self._try_from = number + _WAIT_RECORDS
                break
            self._smallest = min(self._smallest, piece.smallest)
            self._largest = max(self._largest, piece.largest)
            self._lacks_key |= piece.lacks_key
            number += piece.records
            at += piece.size
        return number, at

    def _reach(self, data: bytes, at: int, number: int) -> int:
        """Return the bytes needed if the window ended within a record."""
        try:
            _varint(data, at)
        except IndexError:
            return len(data) - at + 1
        raise invalid(f"record {number} ends within a field") from None

    # ---- records larger than the window ----

    def _walk_large_record(self) -> Generator[None, None, None]:
        self._left = 0
        length = yield from self._next_number(_INT_BYTES, _INT_LAST)
        self._left = length
        yield from self._skip(1)
        delta = yield from self._next_number(_LONG_BYTES, _LONG_LAST)
        self._smallest = min(self._smallest, delta)
        self._largest = max(self._largest, delta)
        offset = yield from self._next_number(_INT_BYTES, _INT_LAST)
        if offset != self._number:
            raise invalid(f"record {self._number} has offset delta {offset}")
        key = yield from self._skip_field()
        self._lacks_key |= key < 0
        yield from self._skip_field()
        headers = yield from self._next_number(_INT_BYTES, _INT_LAST)
        _check_headers(headers, self._left)
        for _ in range(headers):
            _check_header_key((yield from self._skip_field()))
            yield from self._skip_field()
        if self._left:
            raise invalid(
                f"record {self._number} differs in length from its length field"
            )
        self._number += 1

    def _skip_field(self) -> Generator[None, None, int]:
        length = yield from self._next_number(_INT_BYTES, _INT_LAST)
        yield from self._skip(length)
        return length

    def _next_number(self, bytes_max: int, last: int) -> Generator[None, None, int]:
        while len(self._window) - self._at < bytes_max:
            if not (yield from self._fill()):
                break
        try:
            number, at = _number(self._window, self._at, bytes_max, last)
        except IndexError:
            raise invalid(f"record {self._number} ends within a field") from None
        self._left -= at - self._at
        self._at = at
        self._units -= 1
        if self._units <= 0:
            yield from self._step()
        return number

    def _skip(self, size: int) -> Generator[None, None, None]:
        if size > self._left:
            raise invalid(
                f"record {self._number} differs in length from its length field"
            )
        self._left -= max(size, 0)
        while size > len(self._window) - self._at:
            size -= len(self._window) - self._at
            self._at = len(self._window)
            if not (yield from self._fill()):
                raise invalid(f"record {self._number} ends within a field")
        self._at += max(size, 0)


class _Fields(NamedTuple):
    """Fields of a record from its timestamp delta on, and positions of some fields."""

    delta: int
    offset_at: int
    key_length_at: int
    key_length: int
    key_at: int
    value_length_at: int
    value_at: int
    headers_at: int


def _fields(data: bytes, at: int, number: int) -> _Fields:
    """Return the fields of the record whose timestamp delta is at ``at``.

    The record must have offset delta ``number``. Raises INVALID_RECORD or
    ``IndexError``. The caller checks that the fields end within the record.
    """
    code = data[at]
    offset_at = at + 1
    if code >= 0x80:
        delta, offset_at = _varlong(data, at)
    else:
        delta = code >> 1 ^ -(code & 1)
    code = data[offset_at]
    key_length_at = offset_at + 1
    if code >= 0x80:
        code, key_length_at = _code(data, offset_at)
    if code != number << 1:
        raise invalid(f"an offset delta in place of {number}")
    code = data[key_length_at]
    key_at = key_length_at + 1
    if code >= 0x80:
        code, key_at = _code(data, key_length_at)
    if code & 1:
        key_length, value_length_at = -1, key_at
    else:
        key_length = code >> 1
        value_length_at = key_at + key_length
    code = data[value_length_at]
    value_at = value_length_at + 1
    if code >= 0x80:
        code, value_at = _code(data, value_length_at)
    headers_at = value_at if code & 1 else value_at + (code >> 1)
    return _NEW_FIELDS(
        _Fields,
        (
            delta,
            offset_at,
            key_length_at,
            key_length,
            key_at,
            value_length_at,
            value_at,
            headers_at,
        ),
    )


def _code(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned varint of several bytes, and the position after it."""
    high = data[at + 1]
    if high < 0x80:
        return data[at] & 0x7F | high << 7, at + 2
    number, behind = _varint(data, at)
    return number << 1 ^ number >> 31, behind


def _layout(at: int, body: int, fields: _Fields, end: int) -> Layout:
    """Return the layout of a record without headers.

    ``body`` is the position of its attributes.
    """
    return Layout(
        end - at,
        (body + 1 - at, fields.offset_at - at),
        (fields.offset_at - at, fields.key_length_at - at),
        (
            *range(body - at),
            *range(fields.key_length_at - at, fields.key_at - at),
            *range(fields.value_length_at - at, fields.value_at - at),
            end - at - 1,
        ),
    )


def _after_headers(data: bytes, at: int, count: int) -> int:
    """Return the position after ``count`` headers."""
    for _ in range(count):
        length, at = _varint(data, at)
        _check_header_key(length)
        length, at = _varint(data, at + length)
        at += max(length, 0)
    return at


def _check_headers(count: int, left: int) -> None:
    if not 0 <= count <= left:
        raise invalid(f"{count} headers in {left} bytes")


def _check_header_key(length: int) -> None:
    if length < 0:
        raise invalid("a header without a key")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    return _number(data, at, _INT_BYTES, _INT_LAST)


def _varlong(data: bytes, at: int) -> tuple[int, int]:
    return _number(data, at, _LONG_BYTES, _LONG_LAST)


def _number(data: bytes, at: int, bytes_max: int, last: int) -> tuple[int, int]:
    """Return a zig-zag varint and the position after it; raise ``IndexError``.

    ``last`` is the largest value of the last of ``bytes_max`` bytes.
    """
    code = shift = 0
    for number in range(1, bytes_max + 1):
        byte = data[at]
        at += 1
        code |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number == bytes_max and byte > last:
                break
            return code >> 1 ^ -(code & 1), at
        shift += 7
    raise invalid("a varint has more bits than its type")
