"""Produce: appended batches, rejected batches, and the time of the answer."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import NONE, Call, World
from tests.broker.apis.requests import (
    START_MS,
    batch,
    fetch_fields,
    leader_and_isr,
    produce_fields,
    stop_replica,
    values_of,
)

T = ("t", 0)


@pytest.fixture
def world() -> World:
    world = World()
    world.create("t")
    return world


def produce(world: World, records: bytes | None, acks: int = 1, **kwargs: Any) -> Call:
    version = kwargs.pop("version", 9)
    client_id = kwargs.pop("client_id", "test")
    fields = produce_fields({T: records}, acks, **kwargs)
    return world.start(ApiKey.PRODUCE, version, client_id=client_id, **fields)


def row(call: Call) -> Any:
    return call.answer.responses[0].partition_responses[0]


def replicated(world: World, epoch: int = 1) -> None:
    """Add broker 2 as a second replica in sync."""
    answer = world.command(
        ApiKey.LEADER_AND_ISR,
        leader_and_isr(T, leader=0, leader_epoch=epoch, isr=(0, 2)),
    )
    assert answer.partition_errors[0].error_code is NONE


def follower_fetch(world: World, offset: int) -> Any:
    """Fetch from ``offset`` as broker 2, which acknowledges all records before it."""
    fields = fetch_fields({T: offset}, replica_id=2)
    return world.send(ApiKey.FETCH, 12, **fields)


# ---- appending ----


def test_offsets_follow_each_other_and_records_come_back(world: World) -> None:
    assert world.produce("t", b"a", b"b").base_offset == 0
    answer = world.produce("t", b"c")
    assert (answer.base_offset, answer.log_start_offset) == (2, 0)
    assert answer.log_append_time is None
    found = values_of(world.fetch("t").records)
    assert found == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_topics_are_named_by_id_from_version_13_on(world: World) -> None:
    topic_id, other_id = world.create("by-id", 2), world.create("other")
    unknown_id = UUID(int=77)

    def send(*keys: tuple[UUID | str, int]) -> dict[tuple[UUID, int], Any]:
        fields = produce_fields({key: batch(b"a") for key in keys})
        answer = world.send(ApiKey.PRODUCE, 13, **fields)
        return {
            (topic.topic_id, row.index): (row.error_code, row.base_offset)
            for topic in answer.responses
            for row in topic.partition_responses
        }

    # A single batch is handled at once, several batches are not.
    for offset in range(2):
        assert send((topic_id, 0)) == {(topic_id, 0): (ErrorCode.none, offset)}
    several = send(
        (unknown_id, 0), (topic_id, 0), (topic_id, 9), (other_id, 0), (unknown_id, 1)
    )
    assert several == {
        (unknown_id, 0): (ErrorCode.unknown_topic_id, -1),
        (unknown_id, 1): (ErrorCode.unknown_topic_id, -1),
        (topic_id, 0): (ErrorCode.none, 2),
        (topic_id, 9): (ErrorCode.unknown_topic_or_partition, -1),
        (other_id, 0): (ErrorCode.none, 0),
    }
    assert send((unknown_id, 0)) == {(unknown_id, 0): (ErrorCode.unknown_topic_id, -1)}
    # A topic with the same name and another id is another topic.
    partition = world.broker.replicas.get(TopicPartition("by-id", 0))
    partition.topic_id = unknown_id
    assert send((topic_id, 0)) == {(topic_id, 0): (ErrorCode.unknown_topic_id, -1)}


def test_log_append_time_is_reported_and_written(world: World) -> None:
    world.create("stamped", message_timestamp_type="LogAppendTime")
    world.pass_ms(250)
    answer = world.produce("stamped", b"a")
    assert round(answer.log_append_time.timestamp() * 1000) == START_MS + 250


def test_each_partition_fails_alone_and_the_first_error_is_recorded(
    world: World,
) -> None:
    fields = produce_fields(
        {("nope", 1): batch(b"x"), T: batch(b"a"), ("t", 5): batch(b"y")}
    )
    call = world.start(ApiKey.PRODUCE, 9, **fields)
    codes = [
        (topic.name, each.index, each.error_code)
        for topic in call.answer.responses
        for each in topic.partition_responses
    ]
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == [("nope", 1, unknown), ("t", 0, NONE), ("t", 5, unknown)]
    assert call.request.error_code == unknown
    assert call.preemption_points == 2


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.invalid_record),
        (b"", ErrorCode.invalid_record),
        (b"\0" * 61, ErrorCode.invalid_record),
        (batch(b"a") + batch(b"b"), ErrorCode.invalid_record),
        (batch(b"a")[:-1] + b"\1", ErrorCode.corrupt_message),
        (batch(b"a")[:-1], ErrorCode.invalid_record),
        (batch(b"x" * 1_100_000), ErrorCode.message_too_large),
        (batch(b"a", attributes=0x10), ErrorCode.transactional_id_authorization_failed),
        (batch(b"a", attributes=0x20), ErrorCode.invalid_record),
    ],
)
def test_an_invalid_batch_is_refused_and_nothing_is_appended(
    world: World, records: bytes | None, error: ErrorCode
) -> None:
    answer = row(produce(world, records))
    assert (answer.error_code, answer.base_offset) == (error, -1)
    assert world.fetch("t").high_watermark == 0


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_odd_acks_are_refused(world: World, acks: int) -> None:
    answer = row(produce(world, batch(b"a"), acks))
    assert answer.error_code is ErrorCode.invalid_required_acks


def test_clients_may_not_write_internal_topics(world: World) -> None:
    world.send(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
    fields = produce_fields({("__consumer_offsets", 0): batch(b"a")})
    for client_id, error in (
        ("test", ErrorCode.invalid_topic_exception),
        # This client may write, but a compacted topic rejects records without keys.
        ("__admin_client", ErrorCode.invalid_record),
    ):
        call = world.start(ApiKey.PRODUCE, 9, client_id=client_id, **fields)
        assert row(call).error_code is error


def test_a_retry_of_an_idempotent_producer_is_answered_as_the_first_time(
    world: World,
) -> None:
    first = batch(b"a", b"b", producer=(7, 0, 0))
    assert row(produce(world, first)).base_offset == 0
    assert row(produce(world, batch(b"c", producer=(7, 0, 2)))).base_offset == 2
    again = row(produce(world, first, acks=-1))
    assert (again.error_code, again.base_offset) == (NONE, 0)
    gap = row(produce(world, batch(b"d", producer=(7, 0, 9))))
    assert gap.error_code is ErrorCode.out_of_order_sequence_number
    assert world.fetch("t").high_watermark == 3


# ---- acks=0 ---------------------------------------------------------------------


def test_acks_0_gets_no_answer(world: World) -> None:
    call = produce(world, batch(b"a"), acks=0)
    assert call.done
    assert call.response == ()
    assert world.fetch("t").high_watermark == 1


def test_acks_0_that_fails_closes_the_connection(world: World) -> None:
    assert produce(world, batch(b"a")[:-1], acks=0).closed


# ---- acks=-1 --------------------------------------------------------------------


def test_acks_all_waits_until_the_follower_has_the_records(world: World) -> None:
    replicated(world)
    call = produce(world, batch(b"a", b"b"), acks=-1)
    assert not call.done
    assert world.fetch("t").high_watermark == 0
    follower_fetch(world, 1)
    assert not call.done
    follower_fetch(world, 2)
    assert (row(call).error_code, row(call).base_offset) == (NONE, 0)
    assert world.fetch("t").high_watermark == 2
    world.check()


def test_acks_1_does_not_wait_for_the_follower(world: World) -> None:
    replicated(world)
    assert row(produce(world, batch(b"a"))).error_code is NONE
    assert world.fetch("t").records == b""


def test_acks_all_fails_at_once_when_the_leadership_moves(world: World) -> None:
    replicated(world)
    call = produce(world, batch(b"a"), acks=-1)
    move = leader_and_isr(T, leader=2, leader_epoch=2, isr=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, move)
    assert row(call).error_code is ErrorCode.not_leader_or_follower
    refused = row(produce(world, batch(b"b"), acks=1, version=10))
    assert refused.error_code is ErrorCode.not_leader_or_follower
    leader = refused.current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 2)


def test_acks_all_fails_at_once_when_the_replica_is_deleted(world: World) -> None:
    replicated(world)
    call = produce(world, batch(b"a"), acks=-1)
    world.command(ApiKey.STOP_REPLICA, stop_replica(T, leader_epoch=1, delete=True))
    assert row(call).error_code is ErrorCode.unknown_topic_or_partition


def test_acks_all_times_out_when_its_time_is_over(world: World) -> None:
    replicated(world)
    call = produce(world, batch(b"a"), acks=-1, timeout_ms=1500)
    world.pass_ms(1499)
    assert not call.done
    world.pass_ms(1)
    assert row(call).error_code is ErrorCode.request_timed_out
    assert world.broker.replicas.produce_purgatory.expired_total == 1


def test_acks_all_completes_when_the_follower_leaves_the_isr(world: World) -> None:
    replicated(world)
    call = produce(world, batch(b"a"), acks=-1)
    alone = leader_and_isr(T, leader=0, leader_epoch=2, isr=(0,), replicas=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, alone)
    assert row(call).error_code is NONE


def test_too_few_replicas_in_sync_refuse_acks_all_before_the_append(
    world: World,
) -> None:
    world.create("two", min_insync_replicas="2")
    alone = leader_and_isr(
        ("two", 0), leader=0, leader_epoch=1, isr=(0,), replicas=(0, 2)
    )
    world.command(ApiKey.LEADER_AND_ISR, alone)
    fields = produce_fields({("two", 0): batch(b"a")}, -1)
    answer = row(world.start(ApiKey.PRODUCE, 9, **fields))
    assert answer.error_code is ErrorCode.not_enough_replicas
    assert world.fetch("two").high_watermark == 0
    assert world.produce("two", b"a").error_code is NONE


def test_no_more_replicas_are_asked_for_than_there_are(world: World) -> None:
    """Kafka's ``effectiveMinIsr`` is at most the number of replicas."""
    world.create("two", min_insync_replicas="2")
    assert world.produce("two", b"a", acks=-1).error_code is NONE
    assert world.produce("two", b"b", acks=1).error_code is NONE
    assert values_of(world.fetch("two").records) == [(0, b"a"), (1, b"b")]


# ---- fewer in sync than min.insync.replicas ----


TWO = ("two", 0)


def in_sync(world: World, epoch: int, *isr: int) -> None:
    """Set the ISR of a topic with replicas 0 and 2 and ``min.insync.replicas`` 2."""
    word = leader_and_isr(TWO, leader=0, leader_epoch=epoch, isr=isr, replicas=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, word)


def caught_up(world: World, offset: int) -> None:
    """Acknowledge all records before ``offset`` as broker 2."""
    world.send(ApiKey.FETCH, 12, **fetch_fields({TWO: offset}, replica_id=2))


@pytest.fixture
def two(world: World) -> World:
    world.create("two", min_insync_replicas="2")
    in_sync(world, 1, 0, 2)
    return world


def test_records_below_min_insync_replicas_are_not_read(two: World) -> None:
    """KIP-966: the high watermark does not advance."""
    two.produce("two", b"a")
    caught_up(two, 1)
    in_sync(two, 2, 0)
    assert two.produce("two", b"b").error_code is NONE
    found = two.fetch("two")
    assert (found.high_watermark, values_of(found.records)) == (1, [(0, b"a")])
    # The follower has all records, but only counts once it is in the ISR.
    caught_up(two, 2)
    assert two.fetch("two").high_watermark == 1
    in_sync(two, 3, 0, 2)
    assert two.fetch("two").high_watermark == 1
    caught_up(two, 2)
    found = two.fetch("two")
    assert values_of(found.records) == [(0, b"a"), (1, b"b")]
    two.check()


def test_records_below_min_insync_replicas_are_not_acknowledged(two: World) -> None:
    fields = produce_fields({TWO: batch(b"a")}, -1, 1500)
    call = two.start(ApiKey.PRODUCE, 9, **fields)
    in_sync(two, 2, 0)
    two.pass_ms(1499)
    assert not call.done
    two.pass_ms(1)
    assert row(call).error_code is ErrorCode.request_timed_out


def test_records_below_min_insync_replicas_cannot_be_deleted(two: World) -> None:
    two.live(2)
    in_sync(two, 2, 0)
    two.produce("two", b"a")
    assert deleted(two, 1) is ErrorCode.offset_out_of_range
    # -1 is the high watermark, which is still 0; the request waits for the follower.
    assert deleted(two, -1) is ErrorCode.request_timed_out
    assert two.fetch("two").log_start_offset == 0


def deleted(world: World, offset: int) -> ErrorCode:
    """Request the deletion of records before ``offset``, with a timeout of 0."""
    topic = {"name": "two", "partitions": [{"partition_index": 0, "offset": offset}]}
    fields = {"topics": [topic], "timeout": timedelta(milliseconds=0)}
    call = world.start(ApiKey.DELETE_RECORDS, 2, **fields)
    world.pass_ms(1)
    error: ErrorCode = call.answer.topics[0].partitions[0].error_code
    return error


def test_too_few_replicas_after_the_append_are_reported(two: World) -> None:
    """All replicas have the records, but the ISR shrinks before the check."""
    two.produce("two", b"a")
    caught_up(two, 1)
    partition = two.broker.replicas.partitions[TWO]
    assert partition.acknowledged(1) is NONE
    in_sync(two, 2, 0)
    told = partition.acknowledged(1)
    assert told is ErrorCode.not_enough_replicas_after_append


# ---- disks ----


def test_flush_messages_makes_records_durable_before_the_answer(world: World) -> None:
    world.create("safe", flush_messages="1")
    world.create("lazy")
    world.produce("safe", b"a")
    world.produce("lazy", b"a")
    left = world.storage.after_power_loss(random.Random(1))
    after = world.restarted(storage=left)
    assert values_of(after.fetch("safe").records) == [(0, b"a")]
    assert after.fetch("lazy").high_watermark == 0
    after.check()
