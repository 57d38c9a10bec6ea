"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs, elections."""

from __future__ import annotations

import errno
import random
from datetime import timedelta
from typing import Any

import pytest

from broker.disk.memory import Faults
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, Call, World
from tests.broker.apis.requests import (
    START_MS,
    batch,
    fetch_fields,
    leader_and_isr,
    produce_fields,
    update_metadata,
    values_of,
)

T = ("t", 0)
UNKNOWN = ErrorCode.unknown_topic_or_partition


@pytest.fixture
def world() -> World:
    """t-0 holds offsets 0 to 5; their times are 10, 11, 12, 30, 31 and 20 ms."""
    world = World()
    world.create("t")
    for start, count in ((10, 3), (30, 2), (20, 1)):
        records = batch(*[b"x"] * count, timestamp_ms=START_MS + start)
        world.send(ApiKey.PRODUCE, 9, **produce_fields({T: records}))
    return world


def lead(world: World, **kwargs: Any) -> None:
    answer = world.command(ApiKey.LEADER_AND_ISR, leader_and_isr(T, **kwargs))
    assert answer.partition_errors[0].error_code is NONE


# ---- ListOffsets ----


def list_offsets(
    world: World, timestamp: int, version: int = 9, key: Any = T, **fields: Any
) -> Any:
    wanted = {
        "partition_index": key[1],
        "timestamp": timestamp,
        "current_leader_epoch": fields.pop("epoch", -1),
    }
    topics = [{"name": key[0], "partitions": [wanted]}]
    fields = {"replica_id": -1, "topics": topics, **fields}
    (topic,) = world.send(ApiKey.LIST_OFFSETS, version, **fields).topics
    return topic.partitions[0]


@pytest.mark.parametrize(
    ("asked_ms", "found"),
    [
        (0, (START_MS + 10, 0)),
        (START_MS + 10, (START_MS + 10, 0)),
        (START_MS + 11, (START_MS + 11, 1)),
        # The first by offset: 3 (at 30 ms) precedes 5 (at 20 ms).
        (START_MS + 13, (START_MS + 30, 3)),
        (START_MS + 31, (START_MS + 31, 4)),
        (START_MS + 32, (-1, -1)),
    ],
)
def test_the_first_record_at_or_after_a_time(
    world: World, asked_ms: int, found: tuple[int, int]
) -> None:
    answer = list_offsets(world, asked_ms)
    assert (answer.error_code, answer.timestamp, answer.offset) == (NONE, *found)


@pytest.mark.parametrize(
    ("special", "since", "found"),
    [
        (-1, 1, (-1, 6, 0)),
        (-2, 1, (-1, 0, 0)),
        (-3, 7, (START_MS + 31, 4, 0)),
        (-4, 8, (-1, 0, 0)),
        (-5, 9, (-1, -1, -1)),
    ],
)
@pytest.mark.parametrize("version", range(1, 10))
def test_special_times_in_the_versions_that_know_them(
    world: World, special: int, since: int, found: tuple[int, int, int], version: int
) -> None:
    answer = list_offsets(world, special, version)
    if version < since:
        assert answer.error_code is ErrorCode.unsupported_version
    else:
        assert (answer.timestamp, answer.offset) == found[:2]
        if version >= 4:
            assert answer.leader_epoch == found[2]


def test_a_time_that_means_nothing_is_refused(world: World) -> None:
    assert list_offsets(world, -6).error_code is ErrorCode.unsupported_version


def test_an_empty_partition_starts_and_ends_at_zero(world: World) -> None:
    world.create("empty")
    for special, offset in ((-1, 0), (-2, 0), (-3, -1)):
        assert list_offsets(world, special, key=("empty", 0)).offset == offset


def test_offsets_of_what_is_not_led_here_are_refused(world: World) -> None:
    assert list_offsets(world, -1, key=("t", 9)).error_code is UNKNOWN
    lead(world, leader=0, leader_epoch=3)
    stale = list_offsets(world, -1, epoch=2)
    assert stale.error_code is ErrorCode.fenced_leader_epoch
    early = list_offsets(world, -1, epoch=4)
    assert early.error_code is ErrorCode.unknown_leader_epoch
    assert list_offsets(world, -1, epoch=3).error_code is NONE
    lead(world, leader=2, leader_epoch=4, isr=(0, 2))
    moved = list_offsets(world, -1)
    assert moved.error_code is ErrorCode.not_leader_or_follower
    # Kafka's debugging consumer, replica id -2, may read from any replica.
    assert list_offsets(world, -2, replica_id=-2).error_code is NONE


@pytest.mark.parametrize(
    ("version", "error"),
    [(4, ErrorCode.leader_not_available), (5, ErrorCode.offset_not_available)],
)
def test_a_new_leader_does_not_tell_offsets_that_may_go_back(
    world: World, version: int, error: ErrorCode
) -> None:
    lead(world, leader=0, leader_epoch=1, isr=(0, 2))
    world.produce("t", b"unreplicated")
    lead(world, leader=0, leader_epoch=2, isr=(0, 2))
    assert list_offsets(world, -1, version).error_code is error
    late = list_offsets(world, START_MS + 31, version)
    assert (late.error_code, late.offset) == (NONE, 4)
    assert list_offsets(world, START_MS + 40, version).error_code is error
    follower = list_offsets(world, -1, version, replica_id=2)
    assert (follower.error_code, follower.offset) == (NONE, 7)
    world.send(ApiKey.FETCH, 12, **fetch_fields({T: 7}, replica_id=2))
    assert list_offsets(world, -1, version).offset == 7


# ---- OffsetForLeaderEpoch ----


def epoch_end(world: World, epoch: int, **fields: Any) -> Any:
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    topics = [{"topic": "t", "partitions": [{**wanted, **fields}]}]
    (topic,) = world.send(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=topics).topics
    return topic.partitions[0]


def test_an_epoch_ends_where_the_next_begins(world: World) -> None:
    lead(world, leader=0, leader_epoch=3)
    world.produce("t", b"a")  # offset 6, epoch 3
    lead(world, leader=0, leader_epoch=7)
    found = {
        epoch: (answer.leader_epoch, answer.end_offset)
        for epoch in (0, 1, 2, 3, 5, 7, 8)
        for answer in [epoch_end(world, epoch)]
    }
    assert found == {
        0: (0, 6),
        1: (0, 6),
        2: (0, 6),
        3: (3, 7),
        5: (3, 7),
        # Epoch 7 has no records, so it ends at the log end.
        7: (7, 7),
        8: (-1, -1),
    }


def test_epochs_are_asked_of_leaders_that_the_client_knows(world: World) -> None:
    lead(world, leader=0, leader_epoch=3)
    fenced = epoch_end(world, 0, current_leader_epoch=2)
    assert fenced.error_code is ErrorCode.fenced_leader_epoch
    assert epoch_end(world, 0, partition=5).error_code is UNKNOWN


# ---- DeleteRecords ----


def delete_records(world: World, offset: int, key: Any = T) -> Call:
    wanted = {"partition_index": key[1], "offset": offset}
    return world.start(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": key[0], "partitions": [wanted]}],
        timeout=timedelta(seconds=1),
    )


def outcome(call: Call) -> tuple[ErrorCode, int]:
    (partition,) = call.answer.topics[0].partitions
    return partition.error_code, partition.low_watermark


def test_records_before_an_offset_are_deleted_for_good(world: World) -> None:
    assert outcome(delete_records(world, 4)) == (NONE, 4)
    assert list_offsets(world, -2).offset == 4
    out = world.fetch("t", 3)
    assert out.error_code is ErrorCode.offset_out_of_range
    assert values_of(world.fetch("t", 5).records)[0][0] == 5
    assert outcome(delete_records(world, 2)) == (NONE, 4)
    assert outcome(delete_records(world, -1)) == (NONE, 6)
    world.check()


def test_a_kill_brings_no_deleted_record_back(world: World) -> None:
    """Kafka writes log start offsets once a minute, and may lose the latest."""
    assert outcome(delete_records(world, 4)) == (NONE, 4)
    after = World(storage=world.storage.after_kill())
    assert list_offsets(after, -2).offset == 4
    assert outcome(delete_records(after, 5)) == (NONE, 5)
    again = World(storage=after.storage.after_power_loss(random.Random(1)))
    assert again.broker.logs.logs[T].log_start_offset >= 4


@pytest.mark.parametrize("upkeep", [False, True])
def test_where_a_deleted_log_began_is_nothing_to_the_next_one(
    world: World, upkeep: bool
) -> None:
    """Otherwise a kill would truncate the new log at the start of the old log."""
    assert outcome(delete_records(world, 5)) == (NONE, 5)
    if upkeep:
        world.pass_ms(120_000)
    after = World(storage=world.storage.after_kill())
    after.send(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    after.create("t")
    for value in (b"a", b"b", b"c"):
        after.produce("t", value)
    again = World(storage=after.storage.after_kill())
    assert list_offsets(again, -2).offset == 0
    assert [value for _, value in values_of(again.fetch("t").records)] == [
        b"a",
        b"b",
        b"c",
    ]


def test_a_start_that_cannot_be_written_is_not_promised(world: World) -> None:
    world.storage.faults = Faults(1, error=errno.ENOSPC)
    code = outcome(delete_records(world, 4))
    assert code == (ErrorCode.kafka_storage_error, -1)
    assert outcome(delete_records(world, 4)) == (NONE, 4)


@pytest.mark.parametrize("offset", [7, -2])
def test_what_is_not_below_the_high_watermark_is_not_deleted(
    world: World, offset: int
) -> None:
    error = ErrorCode.offset_out_of_range
    assert outcome(delete_records(world, offset)) == (error, -1)


def test_compacted_and_internal_topics_keep_their_records(world: World) -> None:
    world.create("c", cleanup_policy="compact")
    world.create("cd", cleanup_policy="compact,delete")
    world.send(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
    for name, error in (
        ("c", ErrorCode.policy_violation),
        ("cd", NONE),
        ("__consumer_offsets", ErrorCode.invalid_topic_exception),
        ("nope", UNKNOWN),
    ):
        assert outcome(delete_records(world, 0, (name, 0)))[0] is error


def test_deleting_waits_for_the_followers_that_live(world: World) -> None:
    """The condition is that of Kafka's ``lowWatermarkIfLeader``."""
    lead(world, leader=0, leader_epoch=1, isr=(0, 2))
    assert outcome(delete_records(world, 0)) == (NONE, 0)
    world.live(2)
    follower = fetch_fields({T: 6}, replica_id=2)
    (wanted,) = follower["topics"][0]["partitions"]
    wanted["log_start_offset"] = 0
    world.send(ApiKey.FETCH, 12, **follower)
    call = delete_records(world, 3)
    assert not call.done
    wanted["log_start_offset"] = 3
    world.send(ApiKey.FETCH, 12, **follower)
    assert outcome(call) == (NONE, 3)
    slow = delete_records(world, 5)
    world.pass_ms(1000)
    assert outcome(slow) == (ErrorCode.request_timed_out, -1)


# ---- DescribeLogDirs ----


def test_each_log_directory_tells_its_replicas() -> None:
    world = World({"log.dirs": "/a,/b"})
    world.create("t", 3)
    world.produce("t", b"x" * 100)
    answer = world.send(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    sizes = {
        (result.log_dir, each.partition_index): each.partition_size
        for result in answer.results
        for topic in result.topics
        for each in topic.partitions
    }
    # The first partition goes to the first directory, the next to the emptier one.
    assert sizes == {
        ("/a", 0): len(batch(b"x" * 100)),
        ("/b", 1): 0,
        ("/a", 2): 0,
    }
    some = world.send(
        ApiKey.DESCRIBE_LOG_DIRS, 5, topics=[{"topic": "t", "partitions": [1]}]
    )
    assert [(r.log_dir, len(r.topics)) for r in some.results] == [("/a", 0), ("/b", 1)]
    assert not any(result.is_cordoned for result in some.results)


# ---- elections and reassignments ----


def elect(world: World, kind: int, topics: Any) -> Any:
    answer = world.send(
        ApiKey.ELECT_LEADERS, 2, election_type=kind, topic_partitions=topics
    )
    results = {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
    return answer.error_code, results


def test_an_election_is_needed_only_where_another_leads(world: World) -> None:
    wanted = [{"topic": "t", "partitions": [0]}, {"topic": "nope", "partitions": [1]}]
    unneeded = ErrorCode.election_not_needed
    expected = {("t", 0): unneeded, ("nope", 1): UNKNOWN}
    assert elect(world, 0, wanted) == (NONE, expected)
    assert elect(world, 0, None) == (NONE, {})
    brokers = {2: ("other", 1)}
    told = update_metadata(T, leader=2, replicas=(0, 2), brokers=brokers)
    world.command(ApiKey.UPDATE_METADATA, told)
    unavailable = ErrorCode.preferred_leader_not_available
    assert elect(world, 0, None) == (NONE, {("t", 0): unavailable})
    assert elect(world, 1, wanted)[1]["t", 0] is unneeded
    leaderless = update_metadata(T, leader=-1, replicas=(), brokers=brokers)
    world.command(ApiKey.UPDATE_METADATA, leaderless)
    nobody = ErrorCode.eligible_leaders_not_available
    assert elect(world, 1, wanted)[1]["t", 0] is nobody
    assert elect(world, 0, wanted)[1]["t", 0] is unavailable
    refused = ErrorCode.invalid_request
    everything = dict.fromkeys(expected, refused)
    assert elect(world, 7, wanted) == (refused, everything)


@pytest.mark.parametrize(
    ("name", "replicas", "error"),
    [
        ("t", [0], NONE),
        ("t", [0, 1], ErrorCode.invalid_replica_assignment),
        ("t", None, ErrorCode.no_reassignment_in_progress),
        ("nope", [0], UNKNOWN),
    ],
)
def test_a_reassignment_has_nowhere_to_go(
    world: World, name: str, replicas: list[int] | None, error: ErrorCode
) -> None:
    wanted = {"partition_index": 0, "replicas": replicas}
    answer = world.send(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        topics=[{"name": name, "partitions": [wanted]}],
    )
    assert answer.error_code is NONE
    assert answer.responses[0].partitions[0].error_code is error
    ongoing = world.send(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    assert (ongoing.error_code, ongoing.topics) == (NONE, ())
