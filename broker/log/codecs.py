"""The codecs of record batches, with a bound on what is unpacked.

Kafka's ``CompressionType``. Producers write snappy raw (librdkafka) or in xerial's
framing (Java); both are read, xerial's is written. LZ4 is written as Kafka's Java
client wants it: a frame of independent blocks (it refuses linked ones, which is what
most libraries write). Nobody's size fields are trusted: more than the limit is
CORRUPT_MESSAGE, and no more than the limit is ever allocated.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import cramjam

from broker.log.batch import corrupt
from broker.log.storage import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
# Values of compression.type; "producer" is none of them.
CODECS: Final = {
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}
UNPACKED_BYTES_MAX: Final = 128 << 20

_SNAPPY_BLOCK: Final = 32 << 10
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC_SIZE: Final = 8
_LZ4_BLOCK: Final = 64 << 10
# Magic, flags (version 1, independent blocks), block size 64 KiB, header checksum.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_STORED: Final = 1 << 31
_ZSTD_LEVEL: Final = 3
_GUESS: Final = 4


def compress(codec: int, data: Buffer) -> bytes:
    """Return the data packed by codec 0 to 4."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == SNAPPY:
        return _xerial(data)
    if codec == LZ4:
        return _lz4_frame(data)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL))
    assert codec == NONE, f"codec {codec}"
    return bytes(data)


def decompress(codec: int, data: Buffer, limit: int = UNPACKED_BYTES_MAX) -> bytes:
    """Return what was packed; raise CORRUPT_MESSAGE if it is damaged or too much."""
    if codec == NONE:
        return bytes(data)
    if codec == SNAPPY:
        return _unsnappy(data, limit)
    unpack = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec]
    return _unpack_within(unpack, data, limit)


def _unpack_within(module: Any, data: Buffer, limit: int) -> bytes:
    """Try growing buffers, since a frame need not say how much it holds."""
    room = min(max(len(data) * _GUESS, 4096), limit)
    while True:
        unpacked = bytearray(room)
        try:
            size = module.decompress_into(data, unpacked)
        except cramjam.DecompressionError as error:
            # Too small a buffer and damage are the same error; at the limit both are.
            if room == limit:
                raise corrupt(f"records do not unpack: {error}") from error
            room = min(room * _GUESS, limit)
        else:
            return bytes(memoryview(unpacked)[:size])


def _xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK]))
        pieces += (struct.pack(">i", len(block)), block)
    return b"".join(pieces)


def _unsnappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if view[:_XERIAL_MAGIC_SIZE] != _XERIAL_HEADER[:_XERIAL_MAGIC_SIZE]:
        return _unsnappy_block(view, limit)
    pieces = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < 4:
            raise corrupt("snappy: half a block length")
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        if not 0 < size <= len(view) - position:
            raise corrupt(f"snappy: a block of {size} bytes")
        pieces.append(_unsnappy_block(view[position : position + size], limit))
        limit -= len(pieces[-1])
        position += size
    return b"".join(pieces)


def _unsnappy_block(block: memoryview, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise corrupt(f"snappy: {size} bytes, the limit is {limit}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise corrupt(f"records do not unpack: {error}") from error


def _lz4_frame(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            pieces += (struct.pack("<I", len(block)), block)
        else:
            pieces += (struct.pack("<I", len(plain) | _LZ4_STORED), bytes(plain))
    pieces.append(bytes(4))
    return b"".join(pieces)
