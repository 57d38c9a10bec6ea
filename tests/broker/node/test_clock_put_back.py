"""The wall clock is set back by an hour, on a running broker or between two starts.

As in Kafka nothing is lost, and retention follows the records' own timestamps. A
period, as opposed to a date, ends at its normal time or sooner.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, Final

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import (
    START_MS,
    batch,
    produce_fields,
    values_of,
)

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
SETTINGS: Final = {
    "log.retention.check.interval.ms": str(MINUTE_MS),
    "log.flush.scheduler.interval.ms": "500",
    "offsets.retention.check.interval.ms": str(MINUTE_MS),
    "offsets.retention.minutes": "10",
}
HOW: Final = ("while it runs", "between two starts")


def put_back(world: World, how: str) -> World:
    """Return the broker that runs after its clock was set back by an hour."""
    if how == HOW[0]:
        world.clock_moved_ms -= HOUR_MS
        return world
    moved_ms = world.now_ms() - START_MS - HOUR_MS
    return World(world.settings, world.storage.after_kill(), clock_moved_ms=moved_ms)


def produce(world: World, value: bytes, **fields: Any) -> Any:
    records = batch(value, timestamp_ms=world.now_ms(), **fields)
    answer = world.send(ApiKey.PRODUCE, 9, **produce_fields({("t", 0): records}))
    return answer.responses[0].partition_responses[0]


def value_at(world: World, offset: int) -> bytes:
    ((found, value),) = values_of(world.fetch("t", offset).records)
    assert found == offset
    return value


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_records_go_by_their_time_stamps_and_none_before(how: str, kind: str) -> None:
    """Each batch is a segment; retention removes segments in order, by timestamp."""
    retention_ms = 30 * MINUTE_MS
    world = World(SETTINGS)
    world.create(
        "t",
        message_timestamp_type=kind,
        retention_ms=str(retention_ms),
        segment_bytes="100",
    )
    stamps: list[int] = []

    def fill() -> None:
        for _ in range(4):
            stamps.append(world.now_ms())
            assert produce(world, b"%d" % len(stamps)).base_offset == len(stamps) - 1
            world.pass_ms(3 * MINUTE_MS)

    fill()
    world = put_back(world, how)
    fill()
    first, gone_at = 0, []
    for minute in range(150):
        now_ms = world.now_ms()
        while first < len(stamps) and now_ms - stamps[first] > retention_ms:
            first += 1
            gone_at.append(minute)
        # A Fetch response does not cross a segment boundary.
        assert [value_at(world, offset) for offset in range(first, len(stamps))] == [
            b"%d" % (offset + 1) for offset in range(first, len(stamps))
        ], minute
        if first:
            below = world.fetch("t", first - 1)
            assert below.error_code is ErrorCode.offset_out_of_range
        world.check()
        world.pass_ms(MINUTE_MS)
    # The records from before the change delay the removal of all later ones.
    assert len(set(gone_at)) == 4, gone_at


@pytest.mark.parametrize("how", HOW)
def test_times_are_found_that_do_not_grow_with_the_offsets(how: str) -> None:
    """ListOffsets returns the lowest offset with a timestamp that late, as in Kafka."""
    world = World(SETTINGS)
    world.create("t", message_timestamp_type="LogAppendTime", segment_bytes="250")
    stamps = []
    for half in range(2):
        world = put_back(world, how) if half else world
        for number in range(9):
            stamps.append(world.now_ms())
            assert produce(world, b"%d" % number).error_code is NONE
            world.pass_ms(7 * MINUTE_MS)
    for wanted in sorted({*stamps, *(stamp + 1 for stamp in stamps)}):
        late = [offset for offset, stamp in enumerate(stamps) if stamp >= wanted]
        sought = {"timestamp": wanted, "current_leader_epoch": -1}
        topic = {"name": "t", "partitions": [sought]}
        answer = world.send(ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=[topic])
        assert answer.topics[0].partitions[0].offset == min(late, default=-1)


@pytest.mark.parametrize("how", HOW)
def test_a_producer_is_still_known_and_goes_on(how: str) -> None:
    world = World(SETTINGS)
    world.create("t")
    assert produce(world, b"0", producer=(7, 0, 0)).base_offset == 0
    assert produce(world, b"1", producer=(7, 0, 1)).base_offset == 1
    world = put_back(world, how)
    world.pass_ms(10 * MINUTE_MS)
    again = produce(world, b"1", producer=(7, 0, 1))
    assert (again.error_code, again.base_offset) == (NONE, 1)
    ahead = produce(world, b"9", producer=(7, 0, 9))
    assert ahead.error_code is ErrorCode.out_of_order_sequence_number
    assert produce(world, b"2", producer=(7, 0, 2)).base_offset == 2


def find_coordinator(world: World) -> None:
    """Create the offsets topic."""
    world.send(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0)
    world.pass_ms(0)


@pytest.mark.parametrize("how", HOW)
def test_offsets_expire_by_the_date_of_their_commit(how: str) -> None:
    world = World(SETTINGS)
    world.create("t")
    find_coordinator(world)
    at = {"partition_index": 0, "committed_offset": 5}
    topic = {"name": "t", "partitions": [at]}
    answer = world.send(
        ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id=-1, topics=[topic]
    )
    assert answer.topics[0].partitions[0].error_code is NONE
    world = put_back(world, how)
    wanted = {"name": "t", "partition_indexes": [0]}
    kept_for = 0
    while True:
        found = world.send(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=[wanted])
        if found.topics[0].partitions[0].committed_offset != 5:
            break
        kept_for += 1
        world.pass_ms(MINUTE_MS)
    assert kept_for in (70, 71)


def test_a_session_lasts_as_long_as_it_was_to_last() -> None:
    world = World({**SETTINGS, "group.initial.rebalance.delay.ms": "0"})
    find_coordinator(world)
    protocols = [{"name": "range", "metadata": b"m"}]
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=10),
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    call = world.start(ApiKey.JOIN_GROUP, 3, member_id="", **fields)
    world.pass_ms(0)
    joined = call.answer
    member = {"group_id": "g", "member_id": joined.member_id}
    in_generation = {**member, "generation_id": joined.generation_id}
    assigned = [{"member_id": joined.member_id, "assignment": b"a"}]
    world.send(ApiKey.SYNC_GROUP, 3, **in_generation, assignments=assigned)

    def beat() -> ErrorCode:
        code: ErrorCode = world.send(ApiKey.HEARTBEAT, 3, **in_generation).error_code
        return code

    put_back(world, HOW[0])
    for _ in range(20):
        world.pass_ms(5000)
        assert beat() is NONE
    world.pass_ms(10_001)
    assert beat() is ErrorCode.unknown_member_id


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("seed", range(5))
def test_a_log_is_flushed_after_its_flush_interval(how: str, seed: int) -> None:
    world = World(SETTINGS)
    world.create("t", flush_ms="1000")
    assert produce(world, b"0").error_code is NONE
    world.pass_ms(2 * MINUTE_MS)
    world = put_back(world, how)
    assert produce(world, b"1").error_code is NONE
    world.pass_ms(2 * MINUTE_MS)
    left = World(SETTINGS, world.storage.after_power_loss(random.Random(seed)))
    assert [value for _, value in values_of(left.fetch("t").records)] == [b"0", b"1"]


@pytest.mark.parametrize("how", HOW)
def test_a_deleted_log_is_removed_after_its_delay(how: str) -> None:
    world = World({**SETTINGS, "log.segment.delete.delay.ms": str(MINUTE_MS)})
    world.create("t")
    world.send(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    deleted = [name for name in world.storage.names("/data") if "-delete" in name]
    assert len(deleted) == 1
    world = put_back(world, how)
    world.pass_ms(MINUTE_MS)
    assert not set(deleted) & set(world.storage.names("/data"))
