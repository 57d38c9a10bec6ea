"""Fetches from a partition whose transactions a Kafka leader has written."""

from __future__ import annotations

from typing import Any

import pytest

from broker.log.log import Log
from broker.protocol.api_keys import ApiKey
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import batch, fetch_fields, values_of
from tests.broker.log.test_transactions import marker, put, sent

T = ("t", 0)
PLAIN, ABORTED, COMMITTED, OPEN = b"plain", b"aborted", b"committed", b"open"


@pytest.fixture
def world() -> World:
    """Offsets: plain 0, aborted 1 and 2, committed 3 and 4, open 5, plain 6."""
    world = World()
    world.create("t")
    log = log_of(world)
    put(log, batch(PLAIN), sent(b"k", ABORTED, 7), marker(7, commit=False))
    put(log, sent(b"k", COMMITTED, 8), marker(8, commit=True))
    put(log, sent(b"k", OPEN, 9))
    assert world.produce("t", PLAIN).base_offset == 6
    return world


def log_of(world: World) -> Log:
    return world.broker.logs.logs[T]  # type: ignore[index]  # a pair is the same key


def fetch(offset: int, level: int, **fields: Any) -> dict[str, Any]:
    return fetch_fields({T: offset}, isolation_level=level, **fields)


def one(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def test_committed_readers_stop_at_the_open_transaction(world: World) -> None:
    read = one(world.send(ApiKey.FETCH, 12, **fetch(0, 1)))
    assert (read.high_watermark, read.last_stable_offset) == (7, 5)
    assert [each for each, _ in values_of(read.records)] == [0, 1, 2, 3, 4]
    told = [(each.producer_id, each.first_offset) for each in read.aborted_transactions]
    assert told == [(7, 1)]


def test_others_read_to_the_high_watermark(world: World) -> None:
    read = one(world.send(ApiKey.FETCH, 12, **fetch(0, 0)))
    assert [each for each, _ in values_of(read.records)] == [0, 1, 2, 3, 4, 5, 6]
    assert read.aborted_transactions is None


def test_a_committed_reader_waits_for_the_end_of_the_transaction(world: World) -> None:
    waiting = fetch(5, 1, max_wait_ms=500)
    call = world.start(ApiKey.FETCH, 12, **waiting)
    world.produce("t", PLAIN)
    assert not call.done
    put(log_of(world), marker(9, commit=False))
    world.produce("t", PLAIN)
    read = one(call.answer)
    assert [each for each, _ in values_of(read.records)] == [5, 6, 7, 8, 9]
    told = [(each.producer_id, each.first_offset) for each in read.aborted_transactions]
    assert told == [(9, 5)]


@pytest.mark.parametrize(("level", "end"), [(0, 7), (1, 5)])
def test_the_end_is_told_by_isolation_level(world: World, level: int, end: int) -> None:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "t", "partitions": [wanted]}]
    answer = world.send(
        ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=level, topics=topics
    )
    assert answer.topics[0].partitions[0].offset == end


def test_a_restart_knows_it_all(world: World) -> None:
    world.broker.close()
    again = World(storage=world.storage.after_kill())
    read = one(again.send(ApiKey.FETCH, 12, **fetch(0, 1)))
    assert (read.high_watermark, read.last_stable_offset) == (7, 5)
    assert len(read.aborted_transactions) == 1
