"""Runs of records with equal layout, compared one column of bytes at a time.

Producers mostly send records of one size. The structural bytes of these records are at
the same positions, ``step`` bytes apart, and a slice with that step is one column of
them. Lengths must be equal within their columns, and offset deltas must be consecutive;
both checks compare two byte strings, in C. About ten columns are compared for a run of
any length, so a record costs 30 ns instead of 700.

A varint has one byte per 7 bits. A run ends where the offset delta grows by a byte,
since the record's length changes there too. Timestamp deltas may differ within their
width.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

# Largest number of records in a run, so that a column fits into the CPU's cache.
RUN_MAX: Final = 2048
# The lower two bytes of an offset delta repeat after this many records.
_PERIOD: Final = 1 << 13
_ONE_BYTE: Final = 1 << 6
_WIDTH_MAX: Final = 4
_ENDS: Final = bytes(range(0x80))
_GOES_ON: Final = bytes(range(0x80, 0x100))
_ODD: Final = bytes(range(1, 0x100, 2))


class Layout(NamedTuple):
    """Positions of a record's structural bytes, relative to its first byte.

    ``times`` and ``offsets`` are the (start, end) of the two deltas; ``lengths`` are
    the positions of all other structural bytes. ``step`` is the record's size.
    """

    step: int
    times: tuple[int, int]
    offsets: tuple[int, int]
    lengths: tuple[int, ...]


class Run(NamedTuple):
    """Number of records in a run, and their smallest and largest timestamp deltas."""

    records: int
    smallest: int
    largest: int


_NO_RUN: Final = Run(0, 0, 0)


def run_like(
    data: bytes, model: int, layout: Layout, first_delta: int, limit: int
) -> Run:
    """Return the run of valid records after ``model`` that have its layout.

    ``first_delta`` is the required offset delta of the first record. At most ``limit``
    records are compared. An empty run is inconclusive.
    """
    step = layout.step
    at = model + step
    width = layout.offsets[1] - layout.offsets[0]
    if width != _width(first_delta):
        return _NO_RUN
    period = _ONE_BYTE if width == 1 else _PERIOD
    count = min(limit, RUN_MAX, (len(data) - at) // step, period - first_delta % period)
    for place in layout.lengths:
        column = data[at + place : at + count * step : step]
        byte = data[model + place]
        if not _same(byte).startswith(column):
            count -= len(column.lstrip(bytes((byte,))))
    for number, expected in enumerate(_offsets(first_delta, width, count)):
        place = layout.offsets[0] + number
        column = data[at + place : at + count * step : step]
        if column != expected[:count]:
            count = _common(column, expected)
    if not count:
        return _NO_RUN
    start, end = layout.times
    columns = [
        data[at + place : at + count * step : step] for place in range(start, end)
    ]
    for column in columns[:-1]:
        count = min(count, _prefix_of(_GOES_ON, column))
    count = min(count, _prefix_of(_ENDS, columns[-1]))
    if not count or len(columns) > _WIDTH_MAX:
        return _NO_RUN
    return Run(count, *_extremes([column[:count] for column in columns]))


def _width(delta: int) -> int:
    """Return the number of bytes of an offset delta as a varint."""
    return (2 * delta).bit_length() // 7 + bool((2 * delta).bit_length() % 7) or 1


def _offsets(first: int, width: int, count: int) -> list[bytes]:
    """Return the columns of ``count`` offset deltas from ``first`` on."""
    low, high = _cycles(width)
    columns = [low[first % _ONE_BYTE :][:count]]
    if width > 1:
        columns.append(high[first % _PERIOD :][:count])
    rest = first // _PERIOD
    for left in range(width - 2, 0, -1):
        byte = rest & 0x7F | (0x80 if left > 1 else 0)
        columns.append(_same(byte)[:count])
        rest >>= 7
    return columns


@lru_cache(maxsize=_WIDTH_MAX)
def _cycles(width: int) -> tuple[bytes, bytes]:
    """Return the first and the second bytes of the offset deltas from 0 on."""
    low_bit, high_bit = 0x80 * (width > 1), 0x80 * (width > 2)
    cycle = bytes(2 * each | low_bit for each in range(_ONE_BYTE))
    high = [bytes((each | high_bit,)) * _ONE_BYTE for each in range(0x80)]
    return cycle * (RUN_MAX // _ONE_BYTE + 1), b"".join(high)


@lru_cache(maxsize=256)
def _same(byte: int) -> bytes:
    return bytes((byte,)) * RUN_MAX


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of two different columns."""
    pairs = enumerate(zip(one, other, strict=False))
    return next(number for number, (a, b) in pairs if a != b)


def _prefix_of(allowed: bytes, column: bytes) -> int:
    """Return the length of the column's prefix of ``allowed`` bytes."""
    others = column.translate(None, allowed)
    return column.index(others[:1]) if others else len(column)


def _extremes(columns: list[bytes]) -> tuple[int, int]:
    """Return the smallest and the largest of zig-zag varints given by columns."""
    if len(columns) == 1:
        return _extremes_of_bytes(columns[0])
    count = len(columns[0])
    raw = bytearray(4 * count)
    for number, column in enumerate(columns):
        raw[number::4] = column
    codes = memoryview(raw).cast("I").tolist()
    if columns[0].translate(None, _ODD) == columns[0]:
        # Without negative deltas, bytes with continuation bits have the same order.
        return _decoded(min(codes)), _decoded(max(codes))
    deltas = [_decoded(code) for code in codes]
    return min(deltas), max(deltas)


def _extremes_of_bytes(column: bytes) -> tuple[int, int]:
    """Return the extremes, which nearly always are the first and the last delta."""
    largest, smallest = _decoded(column[-1]), _decoded(column[0])
    if above := column.translate(None, _from_to(-_ONE_BYTE, largest)):
        largest = max(map(_decoded, above))
    if below := column.translate(None, _from_to(smallest, _ONE_BYTE)):
        smallest = min(map(_decoded, below))
    return smallest, largest


@lru_cache(maxsize=4 * _ONE_BYTE)
def _from_to(low: int, high: int) -> bytes:
    """Return the one-byte codes of the deltas from ``low`` to ``high``."""
    return bytes(code for code in _ENDS if low <= _decoded(code) <= high)


def _decoded(raw: int) -> int:
    """Return the signed number of a varint of up to four bytes, read little-endian.

    >>> _decoded(0x02AC)
    150
    """
    code = raw & 0x7F | (raw & 0x7F00) >> 1 | (raw & 0x7F0000) >> 2
    code |= (raw & 0x7F000000) >> 3
    return (code >> 1) ^ -(code & 1)
