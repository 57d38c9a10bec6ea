"""Record batches of extreme contents with correct CRCs."""

from __future__ import annotations

import random
import struct

from broker.protocol.records.batch import HEADER, HEADER_SIZE, seal
from broker.protocol.records.codecs import compress
from broker.protocol.wire.varint import encode_varint
from tests.broker.apis.requests import START_MS, batch
from tests.fuzzing.drawn import either, one_in

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
TIMES = (LONG_MAX, LONG_MIN, LONG_MAX - 1, -2, 2**62, 0, 2**53, 253_402_300_800_000)
DELTAS = (LONG_MAX, LONG_MIN, -1, 2**31, 2**31 - 1, -(2**31), 1 << 40)
# An empty record: length, attributes, two deltas, null key and value, no header.
_SMALLEST = b"\x0c\0\0\0\1\1\0"
BOMB_RECORDS = 50_000


def zigzag(number: int) -> bytes:
    """Return a signed varint, of up to ten bytes."""
    return encode_varint(((number << 1) ^ (number >> 63)) & (2**64 - 1))


def record(rng: random.Random, number: int, spice: int) -> bytes:
    """Return a record; each part is extreme with probability 1 / ``spice``."""

    def text(usual: bytes | None) -> bytes:
        value = either(rng, spice, [usual], [None, b"", b"k" * 40_000])
        length = -1 if value is None else len(value)
        lie = either(rng, 4 * spice, [length], [-2, 2**31 - 1, LONG_MIN, length + 1])
        return zigzag(lie) + (value or b"")

    headers = either(rng, spice, [0], [1, 50, -1, 2**31 - 1])
    content = b"".join(
        (
            # Kafka stores values from 128 on, but kafka-python and aiokafka misread
            # them.
            bytes([either(rng, spice, [0], [127])]),
            zigzag(either(rng, spice, [number], DELTAS)),
            zigzag(either(rng, spice, [number], DELTAS)),
            text(b"k%d" % (number % 3)),
            text(b"v" * number),
            zigzag(headers),
            (zigzag(1) + b"h" + zigzag(-1)) * max(0, min(headers, 50)),
        )
    )
    size = either(rng, 4 * spice, [len(content)], [-1, 0, 2**31 - 1, len(content) - 1])
    return zigzag(size) + content


def extreme_batch(rng: random.Random) -> bytes:
    """Return the bytes of a ``records`` field: one batch, several, or none."""
    if not one_in(rng, 4):
        return batch(b"plain")
    if one_in(rng, 12):
        size = rng.choice((0, 1, 16, HEADER_SIZE - 1, HEADER_SIZE, 500))
        return rng.randbytes(size)
    whole = b"".join(_batch(rng) for _ in range(either(rng, 8, [1], [2, 5])))
    if one_in(rng, 16):
        whole = whole[: rng.randrange(len(whole))]
    return whole


def _batch(rng: random.Random) -> bytes:
    spice = rng.choice((4, 30, 1000))
    count = rng.choice((1, 2, 10))
    records = b"".join(record(rng, number, spice) for number in range(count))
    codec = rng.choice((0, 0, 1, 2, 3, 4))
    if one_in(rng, 40):
        # A decompression bomb: some kilobytes that expand to many records, or a large
        # one.
        codec, count = 4, rng.choice((1, BOMB_RECORDS))
        records = _SMALLEST * BOMB_RECORDS
    packed = compress(codec, records)
    if one_in(rng, 4 * spice):
        packed = rng.randbytes(30)
    said = either(rng, spice, [count], [0, -1, count + 1, 2**31 - 1, -(2**31)])
    header = HEADER.pack(
        either(rng, spice, [0], [1, -1, LONG_MAX, LONG_MIN]),
        0,
        either(rng, spice, [-1], [0, 2**31 - 1]),
        either(rng, 4 * spice, [2], [0, 1, 3, -1]),
        0,
        codec | either(rng, spice, [0], [8, 16, 32, 48, 64, 128, 5, 7, -32768]),
        either(rng, spice, [said - 1 if said > -(2**31) else 0], [2**31 - 1, -1, 0]),
        either(rng, spice, [START_MS, -1], TIMES),
        either(rng, spice, [START_MS, -1], TIMES),
        either(rng, spice, [-1], [0, 1, 1000, LONG_MAX, LONG_MIN]),
        either(rng, spice, [-1, 0], [32767, -32768]),
        either(rng, spice, [-1, 0], [2**31 - 1, -(2**31)]),
        said,
    )
    whole = bytes(seal(bytearray(header + packed)))
    if one_in(rng, 4 * spice):
        size = rng.choice((-1, 0, len(whole), 2**31 - 1, 40))
        whole = whole[:8] + struct.pack(">i", size) + whole[12:]
    return whole
