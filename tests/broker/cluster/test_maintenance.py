"""Retention, compaction, checkpoints and flushes at their intervals."""

from __future__ import annotations

import errno

import pytest

from broker.disk.checkpoints import RECOVERY_POINTS, read_offsets
from broker.disk.memory import Faults
from broker.log.flushing import flush
from broker.protocol.api_keys import ApiKey
from broker.protocol.records.batch_records import new_batch
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import (
    SECONDS_30,
    START_MS,
    leader_and_isr,
    produce_fields,
)

MINUTE_MS = 60_000
FIRST_MS = 30_000


def start(world: World, topic: str = "t") -> int:
    return world.broker.logs.logs[topic, 0].log_start_offset


@pytest.fixture
def world() -> World:
    return World({"log.retention.check.interval.ms": str(5 * MINUTE_MS)})


def test_old_segments_go_with_the_first_round_after_their_time(world: World) -> None:
    world.create("t", retention_ms=str(10 * MINUTE_MS), segment_bytes="1024")
    world.create("kept")
    for _ in range(4):
        world.produce("t", b"x" * 600)
    world.produce("kept", b"x")
    world.pass_ms(FIRST_MS)
    for _ in range(2):
        world.pass_ms(5 * MINUTE_MS - 1)
        assert start(world) == 0
        world.pass_ms(1)
    assert start(world) == 4
    assert world.fetch("kept").high_watermark == 1
    assert start(world, "kept") == 0
    world.check()


def test_records_that_followers_lack_are_kept(world: World) -> None:
    world.create("t", retention_ms="1000", segment_bytes="1024")
    for _ in range(2):
        world.produce("t", b"x" * 600)
    command = leader_and_isr(("t", 0), leader=0, leader_epoch=1, isr=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, command)
    for _ in range(2):
        world.produce("t", b"x" * 600)
    world.pass_ms(FIRST_MS)
    assert start(world) == 2


def test_a_new_retention_holds_at_the_next_round(world: World) -> None:
    world.create("t", segment_bytes="1024")
    for _ in range(3):
        world.produce("t", b"x" * 600)
    world.pass_ms(FIRST_MS)
    assert start(world) == 0
    entry = {"name": "retention.ms", "value": "1000", "config_operation": 0}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [entry]}
    world.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    world.pass_ms(5 * MINUTE_MS)
    assert start(world) == 3


def test_checkpoints_are_written_every_minute(world: World) -> None:
    world.create("t")
    world.produce("t", b"x")
    flush(world.broker.logs.logs["t", 0])

    def written() -> dict[tuple[str, int], int]:
        return read_offsets(world.storage, "/data", RECOVERY_POINTS)

    world.pass_ms(FIRST_MS - 1)
    assert written() == {}
    world.pass_ms(1)
    assert written() == {("t", 0): 1}
    world.produce("t", b"y")
    flush(world.broker.logs.logs["t", 0])
    world.pass_ms(MINUTE_MS)
    assert written() == {("t", 0): 2}


def test_flush_ms_is_kept_where_a_flusher_runs() -> None:
    world = World(
        {"log.flush.scheduler.interval.ms": "1000", "log.flush.interval.ms": "5000"}
    )
    world.create("t")
    world.produce("t", b"x")
    log = world.broker.logs.logs["t", 0]
    world.pass_ms(FIRST_MS - 1)
    assert log.recovery_point == 0
    world.pass_ms(1)
    assert log.recovery_point == 1


def test_a_failing_disk_costs_one_round_and_nothing_else(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("t", retention_ms="1000", segment_bytes="1024")
    for _ in range(3):
        world.produce("t", b"x" * 600)
    world.storage.faults = Faults(1, error=errno.ENOSPC)
    world.pass_ms(FIRST_MS)
    assert "put off until the next round" in caplog.text
    world.produce("t", b"y")
    world.pass_ms(5 * MINUTE_MS)
    assert start(world) >= 3
    world.check()


COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "1024",
    "min_cleanable_dirty_ratio": "0.01",
}


def put(world: World) -> None:
    sent = new_batch([(START_MS, b"k", b"x" * 600)])
    world.send(ApiKey.PRODUCE, 9, **produce_fields({("t", 0): sent}, 1))


def compacted_topic(world: World) -> None:
    world.create("t", **COMPACTED)
    for _ in range(6):
        put(world)


def cleaner_offset(world: World) -> int:
    return world.broker.logs.logs["t", 0].cleaner_offset


def test_the_cleaner_has_a_period_of_its_own(world: World) -> None:
    compacted_topic(world)
    world.pass_ms(FIRST_MS - 1)
    assert cleaner_offset(world) == 0
    world.pass_ms(1)
    first = cleaner_offset(world)
    assert first > 0
    for _ in range(4):
        put(world)
    # Kafka's log.cleaner.backoff.ms, not the interval of retention.
    world.pass_ms(14_999)
    assert cleaner_offset(world) == first
    world.pass_ms(1)
    assert cleaner_offset(world) > first


@pytest.mark.parametrize(
    "key",
    [
        "log.cleaner.backoff.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.scheduler.interval.ms",
    ],
)
def test_an_interval_of_zero_leaves_pauses_between_the_rounds(key: str) -> None:
    world = World({key: "0"})
    compacted_topic(world)
    world.pass_ms(FIRST_MS)
    assert cleaner_offset(world) > 0
    for _ in range(3):
        rest_ns = world.broker.upkeep_duty.due_ns() - world.now_ns
        assert rest_ns == 10_000_000
        world.pass_ms(10)


@pytest.mark.parametrize(
    "settings", [{"log.cleaner.enable": "false"}, {"log.cleaner.threads": "0"}]
)
def test_a_cleaner_that_is_switched_off_cleans_nothing(
    settings: dict[str, str],
) -> None:
    world = World(settings)
    compacted_topic(world)
    world.pass_ms(10 * MINUTE_MS)
    assert cleaner_offset(world) == 0


def test_the_cleaner_keeps_to_its_rate() -> None:
    """The cleaner reads 3.5 KB twice and writes 0.7 KB, at 400 bytes per second."""
    world = World({"log.cleaner.io.max.bytes.per.second": "400"})
    compacted_topic(world)
    world.pass_ms(FIRST_MS)
    seconds = 0
    while not cleaner_offset(world):
        world.pass_ms(1000)
        seconds += 1
    assert 12 <= seconds <= 40


def test_a_deleted_partition_is_kept_for_file_delete_delay_ms(world: World) -> None:
    world.create("t", file_delete_delay_ms="5000")
    world.produce("t", b"x")
    world.send(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "t"}], timeout=SECONDS_30)

    def kept() -> list[str]:
        return [n for n in world.storage.names("/data") if n.endswith("-delete")]

    assert len(kept()) == 1
    world.pass_ms(4999)
    assert len(kept()) == 1
    world.pass_ms(1)
    assert kept() == []
