"""Jute, ZooKeeper's serialisation: big-endian numbers, and length prefixes.

Functions encode values to bytes, and a `Reader` decodes them. The reader raises
`MalformedFrame` if a frame is truncated or inconsistent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from broker.protocol.errors import MalformedFrame
from broker.zookeeper.znodes import Stat

# A server's default limit on frames, and the limit of Kafka's client on responses (both
# named jute.maxbuffer).
REQUEST_BYTES_MAX: Final = 0xFFFFF
ANSWER_BYTES_MAX: Final = 4 << 20

_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_STAT = struct.Struct(">4q3iq2iq")


def packed_int(value: int) -> bytes:
    """Return the four bytes of an int."""
    return _INT.pack(value)


def packed_long(value: int) -> bytes:
    """Return the eight bytes of a long."""
    return _LONG.pack(value)


def packed_bool(value: bool) -> bytes:
    """Return the byte of a boolean."""
    return b"\x01" if value else b"\x00"


def packed_buffer(value: bytes) -> bytes:
    """Return bytes, prefixed with their size."""
    return _INT.pack(len(value)) + value


def packed_text(value: str) -> bytes:
    """Return a text as UTF-8, prefixed with its size in bytes."""
    return packed_buffer(value.encode())


def packed_texts(values: Sequence[str]) -> bytes:
    """Return the bytes of a vector of texts."""
    return _INT.pack(len(values)) + b"".join(map(packed_text, values))


def packed_stat(stat: Stat) -> bytes:
    """Return the bytes of a znode's stat."""
    return _STAT.pack(*stat)


def framed(body: bytes) -> bytes:
    """Return a frame: its size, then its body."""
    return packed_buffer(body)


class Reader:
    """Sequential reader of a frame."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return len(self._frame) - self._at

    def read_int(self) -> int:
        """Read four bytes."""
        (value,) = _INT.unpack(self._take(4))
        return int(value)

    def read_long(self) -> int:
        """Read eight bytes."""
        (value,) = _LONG.unpack(self._take(8))
        return int(value)

    def read_bool(self) -> bool:
        """Read one byte."""
        return self._take(1) != b"\x00"

    def read_buffer(self) -> bytes:
        """Read bytes; jute's null counts as empty."""
        size = self.read_int()
        return b"" if size == -1 else self._take(size)

    def read_text(self) -> str:
        """Read a text."""
        try:
            return self.read_buffer().decode()
        except UnicodeDecodeError as error:
            raise MalformedFrame(f"a text that is not UTF-8: {error}") from error

    def read_texts(self) -> list[str]:
        """Read a vector of texts; jute's null counts as empty."""
        return [self.read_text() for _ in range(self.read_count())]

    def read_count(self) -> int:
        """Read the size of a vector whose items have at least one byte each."""
        count = self.read_int()
        if not -1 <= count <= self.left:
            raise MalformedFrame(f"a vector of {count} in {self.left} bytes")
        return max(count, 0)

    def read_stat(self) -> Stat:
        """Read a znode's stat."""
        return Stat(*_STAT.unpack(self._take(_STAT.size)))

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise MalformedFrame(f"{size} bytes wanted where {self.left} are left")
        start, self._at = self._at, self._at + size
        return self._frame[start : self._at]


class Frames:
    """Splitter of a byte stream into frames of limited size."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._received = bytearray()

    def receive(self, chunk: bytes) -> None:
        """Add received bytes."""
        self._received += chunk

    def next(self) -> bytes | None:
        """Remove and return a complete frame, if any; raises `MalformedFrame`."""
        if len(self._received) < 4:
            return None
        (size,) = _INT.unpack_from(self._received)
        if not 0 <= size <= self._bytes_max:
            raise MalformedFrame(f"a frame of {size} bytes")
        if len(self._received) < 4 + size:
            return None
        frame = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        return frame
