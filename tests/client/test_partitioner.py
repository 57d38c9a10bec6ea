"""Partitions of records: Java's hash, and equal shares for records without a key."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from broker.client.producer.partitioner import (
    StickyPartitioner,
    murmur2,
    partition_for_key,
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From UtilsTest.testMurmur2 of Apache Kafka.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning")
def test_a_key_goes_where_kafka_python_sends_it() -> None:
    from kafka.partitioner.default import murmur2 as theirs

    rng = random.Random(1)
    for size in range(40):
        key = rng.randbytes(size)
        expected = (theirs(key) & 0x7FFFFFFF) % 7
        assert partition_for_key(key, 7) == expected


def test_records_without_a_key_stick_until_a_batch_is_full_and_spread_evenly() -> None:
    partitioner = StickyPartitioner(1_000, random.Random(4))
    sent: Counter[int] = Counter()
    runs = []
    for _ in range(3_000):
        chosen = partitioner.partition(3, [0, 2])
        if not runs or runs[-1][0] != chosen:
            runs.append((chosen, 0))
        runs[-1] = (chosen, runs[-1][1] + 100)
        sent[chosen] += 100
        partitioner.account(100)
    assert set(sent) == {0, 2}
    assert all(length % 1_000 == 0 for _, length in runs)
    # 300 draws with probability 1/2: three standard deviations are 26 draws.
    assert abs(sent[0] - sent[2]) < 2 * 26 * 1_000


def test_without_any_leader_all_partitions_are_as_good() -> None:
    drawn = {StickyPartitioner(1, random.Random(n)).partition(4, []) for n in range(50)}
    assert drawn == {0, 1, 2, 3}
