"""Fields in the records of internal topics: Kafka's primitive types."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from broker.protocol.errors import MalformedFrame
from broker.protocol.wire.varint import decode_varint, encode_varint

# Rewritten records use a version with 16-bit lengths.
_STRING_BYTES_MAX: Final = 32_767


class UnreadableRecord(Exception):
    """A record with a version or format that this broker does not know."""


def classic_string(text: str | None) -> bytes:
    """Return a string in the encoding of non-flexible versions."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def compact_bytes(data: bytes | None) -> bytes:
    """Return bytes in the encoding of flexible versions."""
    return b"\0" if data is None else encode_varint(len(data) + 1) + data


def compact_string(text: str | None) -> bytes:
    """Return a string in the encoding of flexible versions."""
    return compact_bytes(None if text is None else text.encode())


def compact_array(items: Sequence[bytes]) -> bytes:
    """Return an array of encoded items in the encoding of flexible versions."""
    return encode_varint(len(items) + 1) + b"".join(items)


def compact_int32s(numbers: Sequence[int]) -> bytes:
    """Return an array of numbers in the encoding of flexible versions."""
    packed = struct.pack(f">{len(numbers)}i", *numbers)
    return encode_varint(len(numbers) + 1) + packed


def tagged_fields(fields: Iterable[tuple[int, bytes]] = ()) -> bytes:
    """Return tagged fields, in the order of their tags."""
    written = [
        encode_varint(tag) + encode_varint(len(data)) + data for tag, data in fields
    ]
    return encode_varint(len(written)) + b"".join(written)


class RecordReader:
    """Reader of fields, classic or compact according to the value's version.

    ``flexible`` is set for a tagged field: its struct is compact and has no version.
    """

    __slots__ = ("_at", "_data", "_flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self._flexible = flexible

    def value_version(self, newest: int, flexible_from: int) -> int:
        """Return the version, which determines the encoding of the other fields."""
        version = self.int16()
        if not 0 <= version <= newest:
            raise UnreadableRecord(
                f"found value version {version}, expected 0 to {newest}"
            )
        self._flexible = version >= flexible_from
        return version

    def int8(self) -> int:
        """Return a number of 8 bits."""
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        """Return a number of 16 bits."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        """Return a number of 32 bits."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        """Return a number of 64 bits."""
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        """Return a string that must not be null."""
        text = self.nullable_string()
        if text is None:
            raise UnreadableRecord("found null, expected a string")
        return text

    def nullable_string(self) -> str | None:
        """Return a string."""
        size = self._varint() - 1 if self._flexible else self.int16()
        if size < 0:
            return None
        if size > _STRING_BYTES_MAX:
            raise UnreadableRecord(f"found a string of {size} bytes")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as fault:
            raise UnreadableRecord(str(fault)) from fault

    def uuid(self) -> UUID:
        """Return an id."""
        return UUID(bytes=self._take(16))

    def int32s(self) -> tuple[int, ...]:
        """Return an array of numbers of 32 bits that must not be null."""
        count = self.length()
        return struct.unpack(f">{count}i", self._take(4 * count))

    def blob(self) -> bytes:
        """Return bytes."""
        return self._take(self.length())

    def length(self) -> int:
        """Return the length of an array that must not be null."""
        size = self.nullable_length()
        if size is None:
            raise UnreadableRecord("found null, expected an array")
        return size

    def nullable_length(self) -> int | None:
        """Return the length of an array, None for null."""
        size = self._varint() - 1 if self._flexible else self.int32()
        if size == -1:
            return None
        if not 0 <= size <= len(self._data):
            raise UnreadableRecord(f"found length {size}, expected 0 or more")
        return size

    def tags(self) -> dict[int, bytes]:
        """Return the tagged fields, none before flexible versions."""
        found = {}
        if self._flexible:
            for _ in range(self._varint()):
                tag = self._varint()
                found[tag] = self._take(self._varint())
        return found

    def _varint(self) -> int:
        try:
            value, self._at = decode_varint(self._data, self._at)
        except (IndexError, MalformedFrame) as fault:
            raise UnreadableRecord(f"found no varint: {fault}") from fault
        return value

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise UnreadableRecord(f"found {len(self._data)} bytes, expected {end}")
        taken = self._data[self._at : end]
        self._at = end
        return taken
