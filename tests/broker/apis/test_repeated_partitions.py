"""A partition that a request repeats counts once or is rejected, as in Kafka.

A waiting request of very many partitions adds little cost to a change of one of them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import (
    batch,
    fetch_fields,
    leader_and_isr,
    produce_fields,
    values_of,
)

MANY = 10_000
WITHOUT_END = {"max_wait_ms": 2**31 - 1, "min_bytes": 2**31 - 1, "max_bytes": 2**31 - 1}
T = ("t", 0)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count calls of Python functions; garbage collection is off, as it adds calls."""
    count = [0]
    gc.disable()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        count[0] += event == "call"

    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(None)
        gc.enable()


def fetch_of(names: list[tuple[str, int]], **fields: Any) -> dict[str, Any]:
    """Return a Fetch of partitions in this order, some of them repeated."""
    fetch = fetch_fields(dict.fromkeys(names, 0), **fields)
    (topic,) = fetch["topics"]
    wanted = {each["partition"]: each for each in topic["partitions"]}
    topic["partitions"] = [wanted[index] for _, index in names]
    return fetch


def test_a_fetch_answers_a_partition_once_where_it_was_named_first() -> None:
    world = World()
    world.create("t", 2)
    for value in (b"a", b"b", b"c"):
        world.produce("t", value)
    fields = fetch_of([T, ("t", 1), T])
    (topic,) = fields["topics"]
    # The last entry of a partition sets its offset.
    topic["partitions"][2] = {**topic["partitions"][2], "fetch_offset": 2}
    (answered,) = world.send(ApiKey.FETCH, 4, **fields).responses
    assert [each.partition_index for each in answered.partitions] == [0, 1]
    assert values_of(answered.partitions[0].records)[-1] == (2, b"c")
    assert len(values_of(answered.partitions[0].records)) == 1


def test_a_parked_fetch_that_repeats_a_partition_costs_an_append_one_look() -> None:
    """A check of 200,000 entries would take a third of a second per append."""
    costs = []
    # The first rounds fill caches.
    for times in (1, 1, 1, 10_000):
        world = World()
        world.create("t", 1)
        waiting = world.start(ApiKey.FETCH, 4, **fetch_of([T] * times, **WITHOUT_END))
        assert not waiting.done
        with counted() as calls:
            world.produce("t", b"x")
        assert not waiting.done
        costs.append(calls[0])
    assert costs[-1] == costs[-2]


def test_a_consumer_of_ten_thousand_partitions_costs_an_append_one_look() -> None:
    costs = []
    # The first rounds fill caches.
    for partitions in (1, 1, 1, MANY):
        world = World()
        world.create("t")
        # One replica has all names: a log for each of them would take minutes.
        held = world.broker.replicas.partitions
        names = [TopicPartition("t", index) for index in range(partitions)]
        held.update(dict.fromkeys(names, held[names[0]]))
        waiting = world.start(
            ApiKey.FETCH, 11, **fetch_fields(dict.fromkeys(names, 0), **WITHOUT_END)
        )
        with counted() as calls:
            world.produce("t", b"x")
        costs.append(calls[0])
        assert not waiting.done
    assert costs[-1] == costs[-2]


def test_bytes_of_all_partitions_count_towards_the_least_that_a_fetch_wants() -> None:
    world = World()
    world.create("t", 3)
    everywhere = {("t", index): 0 for index in range(3)}
    fields = fetch_fields(everywhere, max_wait_ms=500, min_bytes=300)
    waiting = world.start(ApiKey.FETCH, 11, **fields)
    for index in range(3):
        assert not waiting.done
        world.produce("t", b"x" * 50, partition=index)
    assert waiting.done
    assert world.broker.replicas.fetch_purgatory.watchers == {}
    world.check()


def test_a_produce_of_many_partitions_costs_a_follower_one_look_at_each() -> None:
    """A follower's fetch only checks the partitions that it advances."""
    partitions = 300
    world = World()
    world.create("t", partitions)
    world.live(0, 1)
    everywhere = [("t", index) for index in range(partitions)]
    for key in everywhere:
        word = leader_and_isr(key, leader=0, leader_epoch=5, isr=(0, 1))
        world.command(ApiKey.LEADER_AND_ISR, word)
    fields = produce_fields(dict.fromkeys(everywhere, batch(b"x")), acks=-1)
    waiting = world.start(ApiKey.PRODUCE, 8, **fields)
    costs = []
    for key in everywhere:
        assert not waiting.done
        with counted() as calls:
            world.send(ApiKey.FETCH, 11, **fetch_fields({key: 1}, replica_id=1))
        costs.append(calls[0])
    assert waiting.done
    (topic,) = waiting.answer.responses
    assert {each.error_code for each in topic.partition_responses} == {NONE}
    # The last fetch also completes the Produce.
    assert max(costs[1:-1]) - min(costs[1:-1]) < 10


def test_a_produce_keeps_the_last_batch_of_a_partition_and_answers_once() -> None:
    world = World()
    world.create("t", 2)
    fields = produce_fields({T: batch(b"first"), ("t", 1): batch(b"other")})
    (topic,) = fields["topic_data"]
    topic["partition_data"].append({"index": 0, "records": batch(b"last")})
    (answered,) = world.send(ApiKey.PRODUCE, 8, **fields).responses
    rows = [(each.index, each.base_offset) for each in answered.partition_responses]
    assert rows == [(0, 0), (1, 0)]
    assert values_of(world.fetch("t").records) == [(0, b"last")]


def test_delete_records_goes_by_the_last_offset_of_a_partition() -> None:
    world = World()
    world.create("t")
    for _ in range(5):
        world.produce("t", b"x")
    named = [{"partition_index": 0, "offset": offset} for offset in (4, 2)]
    topics = [{"name": "t", "partitions": named}]
    thirty_seconds = timedelta(seconds=30)
    answer = world.send(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=thirty_seconds)
    (row,) = answer.topics[0].partitions
    assert (row.low_watermark, row.error_code) == (2, NONE)


@pytest.mark.parametrize("version", [1, 9])
def test_list_offsets_refuses_a_partition_that_is_named_twice(version: int) -> None:
    world = World()
    world.create("t", 2)
    rows = [{"partition_index": index, "timestamp": -1} for index in (0, 1, 0)]
    fields = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}]}
    (topic,) = world.send(ApiKey.LIST_OFFSETS, version, **fields).topics
    refused = ErrorCode.invalid_request
    assert [each.error_code for each in topic.partitions] == [refused, NONE, refused]
