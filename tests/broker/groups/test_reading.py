"""Offsets that a load reads from the log, compared with a decoding of every record."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.group_reading import BYTES_PER_STEP, COST_PER_STEP, read_groups
from broker.groups.state.group import Group
from broker.groups.state.group_messages import OffsetCommit
from broker.groups.state.group_records import (
    OffsetKey,
    offset_record,
    read_key,
    read_offset,
)
from broker.groups.state.offset_store import OffsetStore
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Instant
from broker.shards.record_fields import UnreadableRecord
from broker.shards.shard import Shard
from broker.shards.shard_log import Records

NOW = Instant(0, 1_700_000_000_000)
Found = dict[tuple[str, str, int], OffsetCommit]


def load(lists: list[Records]) -> tuple[Found, int]:
    """Read the records; return the offsets and the number of steps."""
    # Group g2 belongs to another partition.
    shard = Shard[Group](0, lambda group_id: group_id != "g2")
    steps = sum(1 for _ in read_groups(shard, iter(lists), lambda: NOW, {}))
    found: Found = {}
    for group_id, group in shard.by_id.items():
        group.check()
        for target in group.offsets:
            commit = group.offsets.get(target)
            assert commit is not None
            found[group_id, *target] = commit
    return found, steps


def decode_all(lists: list[Records]) -> Found:
    found: Found = {}
    for key, value in (each for some in lists for each in some):
        try:
            target = read_key(key)
            commit = None if value is None else read_offset(value)
        except UnreadableRecord:
            continue
        if isinstance(target, OffsetKey) and target.group_id != "g2":
            if commit is None:
                found.pop(tuple(target), None)
            else:
                found[tuple(target)] = commit
    return found


def a_string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@st.composite
def keys(draw: st.DrawFn) -> bytes:
    version = draw(st.sampled_from((0, 1, 1, 1, 7)))
    group_id = draw(st.sampled_from(("g0", "g1", "g2")))
    topic = draw(st.sampled_from(("t", "u", "")))
    partition = draw(st.sampled_from((0, 1, 256, -1)))
    names = a_string(group_id) + a_string(topic)
    key = struct.pack(">h", version) + names + struct.pack(">i", partition)
    return draw(st.sampled_from((key, key, key, key + b"\0\0\0\1", key[:-1])))


@st.composite
def values(draw: st.DrawFn) -> bytes | None:
    commit = OffsetCommit(
        offset=draw(st.integers(0, 9)),
        leader_epoch=draw(st.integers(-1, 3)),
        metadata=draw(st.sampled_from(("", "", "m", "\u00e9"))),
        commit_ms=draw(st.integers(0, 9)),
        expire_ms=draw(st.sampled_from((-1, -1, 5))),
    )
    value = offset_record(OffsetKey("", "", 0), commit).value
    assert value is not None
    broken = (value[:-1], value[:14] + b"\0\1" + value[16:], b"\0\x09" + value[2:], b"")
    return draw(st.sampled_from((value, value, value, value + b"x", *broken, None)))


@given(st.lists(st.lists(st.tuples(keys(), values()), max_size=6), max_size=6))
def test_a_load_finds_what_every_record_says(lists: list[Records]) -> None:
    assert load(lists)[0] == decode_all(lists)


def commits(count: int, value_bytes: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
    commit = OffsetCommit(7, 0, "m" * value_bytes, NOW.wall_ms)
    for number in range(count):
        yield offset_record(OffsetKey("g0", "t", number % 10), commit)


@pytest.mark.parametrize(
    ("records", "per_step"),
    [
        # Known partitions, in small batches.
        (list(commits(9_600)), COST_PER_STEP),
        # A new topic in each record.
        (
            [
                (offset_record(OffsetKey("g0", f"t{n}", 0), OffsetCommit(1, 0, "", 1)))
                for n in range(9_600)
            ],
            COST_PER_STEP // 6,
        ),
        # Large records.
        (list(commits(960, 30_000)), BYTES_PER_STEP // 30_000 + 1),
    ],
)
def test_records_are_read_in_steps(
    records: list[tuple[bytes, bytes | None]], per_step: int
) -> None:
    lists = [records[at : at + 10] for at in range(0, len(records), 10)]
    steps = load(lists)[1]
    assert steps >= len(records) // per_step


def test_a_commit_is_decoded_once_and_stays_the_same_object() -> None:
    value = offset_record(OffsetKey("g", "t", 0), OffsetCommit(5, 0, "", 100)).value
    assert value is not None
    store = OffsetStore()
    store.add_topic("t", {0: value})
    store.add_topic("u", {})
    target = TopicPartition("t", 0)
    assert len(store) == 1
    assert not store.is_expired(target, 109, 10, empty_since_ms=None)
    assert store.is_expired(target, 110, 10, empty_since_ms=None)
    commit = store.get(target)
    assert commit == OffsetCommit(5, 0, "", 100)
    assert store.get(target) is commit
    assert store.drop(target)
    assert (len(store), store.get(target)) == (0, None)
    store.check()
