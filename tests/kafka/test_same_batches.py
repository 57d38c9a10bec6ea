"""Produced batches with extreme field values: Apache Kafka's answers and ours.

Both receive the same bytes, with every codec. The test compares the error codes, the
records reported as invalid, and the bytes that consumers receive of accepted batches.
Where Doorkeeper is stricter on purpose the topic's name says so, and a row of
``allowed_differences.md`` gives the reason.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from broker.protocol.records.batch_records import record_body, write_varint
from broker.protocol.records.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from tests.broker.log.crafted import batch_of, record
from tests.kafka.conftest import Both, same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import topic
from tests.kafka.test_same_records import fetch, produce

pytestmark = pytest.mark.kafka

SEED = 30
RANDOM_BATCHES = 150
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
INT, LONG = (2**31 - 1, -(2**31)), (2**63 - 1, -(2**63))
# Position in the header, format, values.
HEADER_FIELDS = (
    (0, "q", (1, -1, *LONG)),
    (12, "i", (0, 1, *INT)),
    (21, "h", (0x0100, 0x80, 0x0180, 0x7F00, -0x8000)),
    (23, "i", (0, 2, -1, *INT)),
    (27, "q", (0, -1, -2, 1 << 53, *LONG)),
    (35, "q", (0, -1, -2, 1 << 53, *LONG)),
    (43, "q", (0, 7)),
    (53, "i", (0, *INT)),
    (57, "i", (0, 1, 3, -1, *INT)),
)


def header_extremes(codec: int) -> Iterator[bytes]:
    """Yield batches of two valid records, each with one changed header field."""
    for position, code, values in HEADER_FIELDS:
        for value in values:
            if position == 21:
                value |= codec
            changes = {position: (code, value)}
            yield batch_of([record(), record(1)], codec=codec, changes=changes)


def record_extremes(codec: int) -> Iterator[bytes]:
    """Yield batches with an extreme record field, where Doorkeeper equals Kafka."""
    middle = record_body(b"k", b"v")
    for first in (
        *(record(attributes=each) for each in (1, 7, 255)),
        *(record(time=each) for each in (-1, 1 << 40, -(1 << 40), *LONG)),
        *(record(body=body(key=each)) for each in (-1, -2, -(2**31))),
        *(record(body=body(value=each)) for each in (-1, -2, -(2**31))),
        *(record(body=body(key=each)) for each in (99, 2**31 - 1)),
        *(record(body=body(value=each)) for each in (99, 2**31 - 1)),
        *(record(body=middle[:-1] + write_varint(each)) for each in (-1, 1, *INT)),
        record(body=middle[:-1] + b"\x02\x01\x01"),
        record(body=middle[:-1] + b"\x02\x02h\x03"),
        record(body=middle[:-1] + b"\x02\x02\xff\x01"),
        record(key=None),
        record(key=b"", value=b"", headers=[("", b""), ("h", None)]),
        record(value=bytes(70_000)),
        # Varints in longer than their shortest form.
        b"\x98\x80\x00\x00\x80\x00\x80\x00\x82\x80\x00k\x02v\x00",
    ):
        yield batch_of([first, record(1)], codec=codec)
    yield batch_of([], codec=codec, count=1)
    yield batch_of([b"\xff" * 50], codec=codec)
    yield batch_of([record(), b"\0"], codec=codec, count=1)
    yield batch_of([record()], codec=codec, count=2)
    yield batch_of([record(), record(1)], codec=codec, count=1)
    if codec == NONE:
        for length in (-1, 0, 8, 10, 99, *INT):
            yield batch_of([record(length=length), record(1)], codec=codec)


def body(**said: int) -> bytes:
    """Return a record's body with a wrong length of its key or its value."""
    key, value = said.get("key", 1), said.get("value", 1)
    return b"".join(
        (
            write_varint(key),
            b"k" * (key >= 0),
            write_varint(value),
            b"v" * (value >= 0),
            b"\0",
        )
    )


@pytest.mark.parametrize("codec", CODECS)
def test_extremes_of_the_header(both: Both, codec: int) -> None:
    def talk(peer: Peer) -> None:
        name = topic(peer, f"header-{codec}")
        for sent in header_extremes(codec):
            produce(peer, name, sent)
        fetch(peer, name)

    both.compare(talk)


@pytest.mark.parametrize("codec", CODECS)
def test_extremes_of_a_record(both: Both, codec: int) -> None:
    def talk(peer: Peer) -> None:
        name = topic(peer, f"record-{codec}")
        for sent in record_extremes(codec):
            produce(peer, name, sent)
        fetch(peer, name)

    both.compare(talk)


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_a_topic_does_not_want(both: Both, codec: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    hour_ms = 3_600_000
    ages_ms = (0, 2 * hour_ms, -2 * hour_ms, 0, now_ms + 1, now_ms + 2)
    batches = [
        batch_of(
            [
                record(number, key=key, time=-age_ms)
                for number, age_ms in enumerate(ages)
            ],
            codec=codec,
            changes={27: ("q", now_ms), 35: ("q", said_ms)},
        )
        for key in (b"k", None)
        for ages in ((0, 0), (0, hour_ms // 2, -hour_ms // 2), ages_ms)
        for said_ms in (now_ms, 0, -1, now_ms + 2 * hour_ms)
    ]

    def talk(peer: Peer) -> None:
        compacted = topic(peer, f"keys-{codec}", cleanup_policy="compact")
        timely = topic(
            peer,
            f"times-{codec}",
            message_timestamp_before_max_ms=str(hour_ms),
            message_timestamp_after_max_ms=str(hour_ms),
        )
        for name in (compacted, timely):
            for sent in batches:
                produce(peer, name, sent)
            fetch(peer, name)

    both.compare(talk)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_codecs_stream_that_is_cut(both: Both, codec: int) -> None:
    packed = compress(codec, record(value=random.Random(SEED).randbytes(500)))

    def talk(peer: Peer) -> None:
        name = topic(peer, f"cut-{codec}")
        for cut in (1, 2, 4, 5, 8, 9, 100, len(packed) - 1, len(packed)):
            produce(
                peer, name, batch_of([b"."], codec=codec, packed=packed[: -cut or None])
            )
        fetch(peer, name)

    both.compare(talk)


def test_batches_drawn_by_a_seed(both: Both) -> None:
    """Several fields of header and records are extreme at the same time."""
    print(f"seed {SEED}, {RANDOM_BATCHES} batches")
    rng = random.Random(SEED)
    batches = [drawn(rng) for _ in range(RANDOM_BATCHES)]

    def talk(peer: Peer) -> None:
        name = topic(peer, "drawn")
        for sent in batches:
            produce(peer, name, sent)
        fetch(peer, name)

    both.compare(talk)


def drawn(rng: random.Random) -> bytes:
    """Return a random batch that both accept, or refuse by a common rule."""
    count = rng.choice((1, 2, 5, 70, 200))
    codec = rng.choice(CODECS)
    size = rng.choice((0, 5, 80))
    records = [
        record(
            number,
            time=rng.choice((0, number, 3 * number, -number)),
            attributes=rng.choice((0, 0, 255)),
            key=rng.choice((b"k" * size, b"key", None)),
            value=rng.choice((b"v" * size, b"value", None)),
            headers=rng.choice(((), (), [("h", b"1")])),
        )
        for number in range(count)
    ]
    changes = {}
    if rng.random() < 0.5:
        position, code, values = rng.choice(HEADER_FIELDS)
        value = rng.choice(values)
        changes[position] = (code, value | codec if position == 21 else value)
    if rng.random() < 0.2 and codec == NONE:
        at = rng.randrange(count)
        records[at] = records[at][:-1] + bytes([rng.randrange(256)])
    said = count + rng.choice((0, 0, 0, 0, 1, -1))
    return batch_of(records, codec=codec, count=max(said, 1), changes=changes)


@same_answers
def test_batches_that_we_are_stricter_with(peer: Peer) -> None:
    for codec in CODECS:
        name = topic(peer, f"stricter-offset-{codec}")
        for delta in (1, -1, *INT):
            produce(peer, name, batch_of([record(delta)], codec=codec))
    for codec in CODECS[1:]:
        name = topic(peer, f"stricter-length-{codec}")
        produce(peer, name, batch_of([record(extra=1)], codec=codec))
        name = topic(peer, f"stricter-behind-{codec}")
        packed = compress(codec, record()) + b"behind"
        produce(peer, name, batch_of([b"."], codec=codec, packed=packed))
    wide = b"\xfe\xff\xff\xff\x7f"
    name = topic(peer, "stricter-varint")
    produce(peer, name, batch_of([b"\x14\0\0\0" + wide + b"\1\0"]))
