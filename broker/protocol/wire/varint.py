"""Unsigned varints, for lengths, counts and tags of flexible versions (KIP-482)."""

from __future__ import annotations

from typing import Final

from broker.protocol.errors import MalformedFrame

# Seven bits of an unsigned 32-bit number in each byte.
_BITS_MAX: Final = 35


def encode_varint(value: int) -> bytes:
    """Return ``value``, 0 or more, as an unsigned varint.

    >>> encode_varint(300).hex()
    'ac02'
    """
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return the value at ``offset`` and the offset after it.

    :raises IndexError: if ``data`` ends first.
    :raises MalformedFrame: if the varint has more than five bytes.

    >>> decode_varint(bytes.fromhex("ac02"), 0)
    (300, 2)
    """
    value = 0
    for shift in range(0, _BITS_MAX, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise MalformedFrame("varint of more than five bytes")


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))
