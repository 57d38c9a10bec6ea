"""A Fetch from an older segment than the active one does not wait.

Kafka's ``DelayedFetch``, case F: a Fetch completes, regardless of ``min_bytes``, if its
offset is in an older segment than the last readable offset.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import batch, fetch_fields, leader_and_isr, values_of

T = ("t", 0)
# A batch with this value fills a segment of the minimum size.
VALUE = b"x" * 700
BATCH_BYTES = len(batch(VALUE))
WAITING = {"max_wait_ms": 5_000, "min_bytes": 100_000}


@pytest.fixture
def world() -> World:
    """A topic with three segments and an active segment, of one batch each."""
    world = World()
    world.create("t", segment_bytes="1024")
    for _ in range(4):
        world.produce("t", VALUE)
    assert len(world.broker.replicas.get(T).log.segments) == 4
    return world


def fetch(world: World, offset: int, **fields: Any) -> Any:
    wanted = {**WAITING, **fields}
    return world.start(ApiKey.FETCH, 12, **fetch_fields({T: offset}, **wanted))


def records(call: Any) -> list[tuple[int, bytes]]:
    return values_of(call.answer.responses[0].partitions[0].records)


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_in_an_older_segment_it_is_answered_at_once(world: World, offset: int) -> None:
    call = fetch(world, offset)
    assert call.done
    assert records(call) == [(offset, VALUE)]


def test_in_the_active_segment_it_waits_for_min_bytes(world: World) -> None:
    call = fetch(world, 3, min_bytes=BATCH_BYTES + 1)
    assert not call.done
    # The next append rolls the segment, so the reader is behind it.
    world.produce("t", VALUE)
    assert call.done
    assert records(call) == [(3, VALUE)]


def test_at_the_end_it_waits_also_if_a_segment_was_just_rolled(world: World) -> None:
    call = fetch(world, 4, min_bytes=1)
    assert not call.done
    world.produce("t", VALUE)
    assert records(call) == [(4, VALUE)]


def test_a_consumer_is_measured_against_the_high_watermark(world: World) -> None:
    """Records above the high watermark are not readable in any segment."""
    command = leader_and_isr(T, leader=0, leader_epoch=1, isr=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, command)
    world.produce("t", VALUE)
    assert world.broker.replicas.get(T).high_watermark == 4
    assert not fetch(world, 4, min_bytes=1).done
    assert fetch(world, 3).done
    # A follower reads to the log end, and is behind at the same offset.
    assert fetch(world, 3, replica_id=2).done
    assert not fetch(world, 4, replica_id=2).done


def test_an_offset_beyond_the_high_watermark_is_not_waited_for(world: World) -> None:
    """The leader was truncated, and the reader has to find its new offset."""
    command = leader_and_isr(T, leader=0, leader_epoch=1, isr=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, command)
    for _ in range(2):
        world.produce("t", VALUE)
    assert fetch(world, 5, min_bytes=1).done


def test_bytes_are_counted_over_partitions_and_capped_by_each(world: World) -> None:
    world.create("u")
    wanted = {T: 3, ("u", 0): 0}
    fields = fetch_fields(wanted, max_wait_ms=5_000, min_bytes=BATCH_BYTES + 200)
    call = world.start(ApiKey.FETCH, 12, **fields)
    assert not call.done
    world.produce("u", b"y" * 300)
    assert call.done
