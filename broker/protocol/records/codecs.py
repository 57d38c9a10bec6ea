"""The codecs of record batches, processed in bounded pieces.

Kafka's ``CompressionType``. Producers write snappy raw (librdkafka) or in xerial's
framing (Java); both are read, and xerial's is written. LZ4 is written as required by
Kafka's Java client: a frame of independent blocks. The client rejects linked blocks,
which most libraries write.

A few kilobytes can unpack to gigabytes, so data is unpacked only as it is consumed:
`unpacked` yields pieces of at most 64 KiB (a snappy block is one piece, at most 21
times its packed size). Size fields in the data are not trusted.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final

import cramjam
import zstandard
from lz4.block import compress as compress_block
from lz4.frame import LZ4FrameDecompressor

from broker.protocol.buffer import Buffer
from broker.protocol.records.batch import corrupt

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
# Values of compression.type, except "producer".
CODECS: Final = {
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}
UNPACKED_BYTES_MAX: Final = 128 << 20
# The window of zstd's level 19, and the minimum for decoders recommended by RFC 8878.
WINDOW_BYTES_MAX: Final = 8 << 20

_SNAPPY_BLOCK: Final = 32 << 10
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC_SIZE: Final = 8
_LZ4_BLOCK: Final = 64 << 10
# Magic, flags (version 1, independent blocks), block size 64 KiB, header checksum.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_STORED: Final = 1 << 31
_LZ4_MAGIC: Final = 0x184D2204
# Mask of the fixed flags: version 1, independent blocks, reserved bits, no dictionary.
_LZ4_FIXED_FLAGS: Final = 0b1110_0011
_LZ4_INDEPENDENT: Final = 0b0110_0000
_LZ4_BLOCK_CHECKSUM: Final = 16
_LZ4_CONTENT_SIZE: Final = 8
_LZ4_CONTENT_CHECKSUM: Final = 4
_LZ4_FIXED_SIZES: Final = 0b1000_1111
_LZ4_LEAST_SIZE: Final = 4
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_RLE: Final = 1
_ZSTD_LEVEL: Final = 3
# Kafka's default level, for its fast compressor; other levels use the high compressor.
_LZ4_FAST_LEVEL: Final = 9
_PIECE_BYTES: Final = 64 << 10
_PLAIN_PIECE_BYTES: Final = 256 << 10
# Blocks whose headers are read in one step: about half a millisecond.
_STEP_BLOCKS: Final = 2048
_GZIP_WINDOW: Final = 31
_SNAPPY_RATIO_MAX: Final = 22


def compress(codec: int, data: Buffer) -> bytes:
    """Return the data compressed by codec 0 to 4."""
    packer = Packer(codec, len(data))
    return packer.add(data) + packer.end()


class Packer:
    """Compressor of pieces by codec 0 to 4: the output of all `add`, then of `end`.

    ``size`` is the total size of the pieces, -1 if unknown. ``level`` is that of gzip
    (-1, 1 to 9), lz4 (1 to 17) or zstd (up to 22); None means Kafka's default.
    """

    def __init__(self, codec: int, size: int = -1, level: int | None = None) -> None:
        self._add, self._end = _PACKERS[codec](size, level)

    def add(self, data: Buffer) -> bytes:
        """Add a piece; return the compressed output available so far."""
        return self._add(data)

    def end(self) -> bytes:
        """Return the rest of the output."""
        return self._end()


def decompress(codec: int, data: Buffer, limit: int = UNPACKED_BYTES_MAX) -> bytes:
    """Return the unpacked data; raise CORRUPT_MESSAGE if it is damaged or too large."""
    return b"".join(unpacked(codec, data, limit))


def unpacked(
    codec: int, data: Buffer, limit: int = UNPACKED_BYTES_MAX
) -> Iterator[bytes]:
    """Yield the unpacked data; raise CORRUPT_MESSAGE as `decompress` does."""
    unpacker = _UNPACKERS.get(codec)
    if unpacker is None:
        raise corrupt(f"codec {codec} is not one of {sorted(_UNPACKERS)}")
    left = limit
    try:
        for piece in unpacker(data):
            left -= len(piece)
            if left < 0:
                raise corrupt(f"records unpack to more than {limit} bytes")
            yield piece
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise corrupt(f"records do not unpack: {error}") from error


def large_window() -> None:
    """Do nothing; mark the step before unpacking with a large window.

    Its driver admits only one such unpacking at a time, also across preemption.
    """


def check_stream(codec: int, data: Buffer) -> Generator[None, None, int]:
    """Return the largest window in bytes; raise CORRUPT_MESSAGE if the stream is cut.

    This checks properties that unpacking does not: an LZ4 stream must be one frame of
    independent blocks, since Kafka's clients read no other. Zstandard's library does
    not report a stream that ends within a frame.
    """
    check = {LZ4: _check_lz4, ZSTD: _check_zstd}.get(codec)
    if check is None:
        return 0
    try:
        return (yield from check(memoryview(data)))
    except (IndexError, struct.error):
        raise corrupt("records do not unpack: the codec's stream is cut") from None


def _check_lz4(data: memoryview) -> Generator[None, None, int]:
    """Walk the frame's blocks (LZ4 frame format 1.6.3; ``Lz4BlockInputStream``)."""
    magic, flags, sizes = struct.unpack_from("<IBB", data)
    if magic != _LZ4_MAGIC or flags & _LZ4_FIXED_FLAGS != _LZ4_INDEPENDENT:
        raise corrupt(f"lz4: magic {magic:#x}, flags {flags:#x}")
    if sizes & _LZ4_FIXED_SIZES or sizes >> 4 < _LZ4_LEAST_SIZE:
        raise corrupt(f"lz4: block size {sizes:#x}")
    at = 7 + 8 * bool(flags & _LZ4_CONTENT_SIZE)
    checksum = 4 * bool(flags & _LZ4_BLOCK_CHECKSUM)
    blocks = 0
    while size := struct.unpack_from("<I", data, at)[0] & ~_LZ4_STORED:
        at += 4 + size + checksum
        blocks += 1
        if not blocks % _STEP_BLOCKS:
            yield None
    at += 4 + 4 * bool(flags & _LZ4_CONTENT_CHECKSUM)
    if at != len(data):
        raise corrupt(f"lz4: the frame ends at {at} of {len(data)} bytes")
    return 0


def _check_zstd(data: memoryview) -> Generator[None, None, int]:
    """Walk the blocks of all frames (RFC 8878, section 3.1)."""
    at = blocks = window = 0
    while at < len(data):
        (magic,) = struct.unpack_from("<I", data, at)
        blocks += 1
        if not blocks % _STEP_BLOCKS:
            yield None
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            at += 8 + struct.unpack_from("<I", data, at + 4)[0]
        elif magic == _ZSTD_MAGIC:
            flags = data[at + 4]
            single = flags >> 5 & 1
            content = (single, 2, 4, 8)[flags >> 6]
            descriptor = data[at + 5]
            at += 6 - single + (0, 1, 2, 4)[flags & 3] + content
            if single:
                size = int.from_bytes(data[at - content : at], "little")
                window = max(window, size)
            else:
                eighth = 1 << (descriptor >> 3) + 7
                window = max(window, eighth * (8 + (descriptor & 7)))
            last = False
            while not last:
                head = int.from_bytes(data[at : at + 3], "little")
                last = bool(head & 1) or at >= len(data)
                at += 3 + (1 if head >> 1 & 3 == _ZSTD_RLE else head >> 3)
                blocks += 1
                if not blocks % _STEP_BLOCKS:
                    yield None
            at += 4 * (flags >> 2 & 1)
        else:
            raise corrupt(f"zstd: magic {magic:#x}")
    if at != len(data):
        raise corrupt(f"zstd: frames of {at} in {len(data)} bytes")
    return window


def _plain(data: Buffer) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), _PLAIN_PIECE_BYTES):
        yield bytes(view[start : start + _PLAIN_PIECE_BYTES])


def _ungzip(data: Buffer) -> Iterator[bytes]:
    # Pass slices: a library copies the input that it has not consumed.
    given = _slices(data)
    rest = next(given, b"")
    while rest:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            piece = stream.decompress(rest, _PIECE_BYTES)
            rest = stream.unconsumed_tail
            if not rest and not stream.eof and len(piece) < _PIECE_BYTES:
                rest = next(given, b"")
                if not rest and not piece:
                    raise EOFError("gzip: it ends within a stream")
            yield piece
        rest = stream.unused_data or next(given, b"")


def _unlz4(data: Buffer) -> Iterator[bytes]:
    given = _slices(data)
    rest = next(given, b"")
    while rest:
        stream = LZ4FrameDecompressor()
        while not stream.eof:
            piece = stream.decompress(rest, max_length=_PIECE_BYTES)
            rest = b""
            if stream.needs_input and not stream.eof:
                rest = next(given, b"")
                if not rest and not piece:
                    raise EOFError("lz4: it ends within a frame")
            yield piece
        rest = stream.unused_data or next(given, b"")


def _slices(data: Buffer) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), _PIECE_BYTES):
        yield bytes(view[start : start + _PIECE_BYTES])


def _unzstd(data: Buffer) -> Iterator[bytes]:
    with zstandard.ZstdDecompressor().stream_reader(
        data, read_across_frames=True
    ) as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


def _unsnappy(data: Buffer) -> Iterator[bytes]:
    view = memoryview(data)
    if view[:_XERIAL_MAGIC_SIZE] != _XERIAL_HEADER[:_XERIAL_MAGIC_SIZE]:
        yield _unsnappy_block(view)
        return
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < 4:
            raise corrupt("snappy: half a block length")
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        if not 0 < size <= len(view) - position:
            raise corrupt(f"snappy: a block of {size} bytes")
        yield _unsnappy_block(view[position : position + size])
        position += size


def _unsnappy_block(block: memoryview) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        # A copy element of three bytes yields at most 64 bytes.
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise corrupt(f"snappy: {size} bytes in {len(block)}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise corrupt(f"records do not unpack: {error}") from error


class _Blocks:
    """Compressor that splits its input into independent blocks of one size."""

    def __init__(
        self, size: int, header: bytes, pack: Callable[[memoryview], bytes], end: bytes
    ) -> None:
        self._size = size
        self._packed = bytearray(header)
        self._pack = pack
        self._end = end
        self._held = bytearray()

    def add(self, data: Buffer) -> bytes:
        self._held += data
        self._pack_blocks(len(self._held) // self._size * self._size)
        return self._taken()

    def end(self) -> bytes:
        self._pack_blocks(len(self._held))
        self._packed += self._end
        return self._taken()

    def _pack_blocks(self, up_to: int) -> None:
        with memoryview(self._held) as held:
            for start in range(0, up_to, self._size):
                with held[start : min(start + self._size, up_to)] as block:
                    self._packed += self._pack(block)
        del self._held[:up_to]

    def _taken(self) -> bytes:
        packed = bytes(self._packed)
        self._packed.clear()
        return packed


def _xerial_block(plain: memoryview) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(plain))
    return struct.pack(">i", len(block)) + block


def _lz4_block(plain: memoryview, level: int) -> bytes:
    if level == _LZ4_FAST_LEVEL:
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
    else:
        block = compress_block(
            plain, mode="high_compression", compression=level, store_size=False
        )
    if len(block) < len(plain):
        return struct.pack("<I", len(block)) + block
    return struct.pack("<I", len(plain) | _LZ4_STORED) + bytes(plain)


_Pack = tuple[Callable[[Buffer], bytes], Callable[[], bytes]]


def _no_packing(size: int, level: int | None) -> _Pack:
    return bytes, bytes


def _gzip(size: int, level: int | None) -> _Pack:
    stream = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WINDOW)
    return stream.compress, stream.flush


def _snappy(size: int, level: int | None) -> _Pack:
    blocks = _Blocks(_SNAPPY_BLOCK, _XERIAL_HEADER, _xerial_block, b"")
    return blocks.add, blocks.end


def _lz4(size: int, level: int | None) -> _Pack:
    pack = partial(_lz4_block, level=_LZ4_FAST_LEVEL if level is None else level)
    blocks = _Blocks(_LZ4_BLOCK, _LZ4_HEADER, pack, bytes(4))
    return blocks.add, blocks.end


def _zstd(size: int, level: int | None) -> _Pack:
    packer = zstandard.ZstdCompressor(level=_ZSTD_LEVEL if level is None else level)
    stream = packer.compressobj(size=size)
    return stream.compress, stream.flush


_PACKERS: Final = {
    NONE: _no_packing,
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
_UNPACKERS: Final = {
    NONE: _plain,
    GZIP: _ungzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
