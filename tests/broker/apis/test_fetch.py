"""Fetch: waits, bounds, offsets, epochs, topic ids, followers and sessions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.disk.storage import FileSlice
from broker.log.trimming import delete_records_before
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import (
    batch,
    fetch_fields,
    leader_and_isr,
    stop_replica,
    values_of,
)

T = ("t", 0)
WAITING = {"max_wait_ms": 500, "min_bytes": 1}


@pytest.fixture
def world() -> World:
    world = World()
    world.create("t", 3)
    return world


def partitions(answer: Any) -> dict[tuple[str, int], Any]:
    return {
        (topic.topic, each.partition_index): each
        for topic in answer.responses
        for each in topic.partitions
    }


def one(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def lead(world: World, **kwargs: Any) -> None:
    """Send a LeaderAndIsr of t-0 to broker 0."""
    answer = world.command(ApiKey.LEADER_AND_ISR, leader_and_isr(T, **kwargs))
    assert answer.partition_errors[0].error_code is NONE


# ---- long poll ----


def test_a_fetch_waits_for_records_and_is_answered_with_them(world: World) -> None:
    call = world.start(ApiKey.FETCH, 12, **fetch_fields({T: 0}, **WAITING))
    assert not call.done
    world.pass_ms(499)
    world.produce("t", b"late")
    assert values_of(one(call.answer).records) == [(0, b"late")]


def test_a_fetch_is_answered_empty_when_its_time_is_over(world: World) -> None:
    call = world.start(ApiKey.FETCH, 12, **fetch_fields({T: 0}, **WAITING))
    world.pass_ms(499)
    assert not call.done
    world.pass_ms(1)
    assert (one(call.answer).error_code, one(call.answer).records) == (NONE, b"")
    assert world.broker.replicas.fetch_purgatory.expired_total == 1


def test_a_fetch_waits_for_min_bytes_over_all_its_partitions(world: World) -> None:
    size = len(batch(b"x" * 100))
    wanted = fetch_fields({T: 0, ("t", 1): 0}, max_wait_ms=500, min_bytes=2 * size)
    call = world.start(ApiKey.FETCH, 12, **wanted)
    world.produce("t", b"x" * 100)
    assert not call.done
    world.produce("t", b"x" * 100, partition=1)
    assert [len(each.records) for each in partitions(call.answer).values()] == [
        size,
        size,
    ]


def test_zero_min_bytes_or_no_wait_is_answered_at_once(world: World) -> None:
    for fields in ({"min_bytes": 0, "max_wait_ms": 500}, {"max_wait_ms": 0}):
        call = world.start(ApiKey.FETCH, 12, **fetch_fields({T: 0}, **fields))
        assert call.done


def test_any_partitions_error_is_answered_at_once(world: World) -> None:
    wanted = fetch_fields({T: 0, ("nope", 0): 0}, **WAITING)
    call = world.start(ApiKey.FETCH, 12, **wanted)
    found = partitions(call.answer)
    unknown = ErrorCode.unknown_topic_or_partition
    assert [each.error_code for each in found.values()] == [NONE, unknown]
    assert call.request.error_code == unknown


def test_a_waiting_fetch_is_answered_when_the_epoch_moves(world: World) -> None:
    fields = fetch_fields({T: 0}, epoch=0, **WAITING)
    call = world.start(ApiKey.FETCH, 12, **fields)
    lead(world, leader=0, leader_epoch=1)
    assert one(call.answer).error_code is ErrorCode.fenced_leader_epoch


def test_a_waiting_fetch_is_answered_when_the_replica_is_deleted(world: World) -> None:
    call = world.start(ApiKey.FETCH, 12, **fetch_fields({T: 0}, **WAITING))
    world.command(ApiKey.STOP_REPLICA, stop_replica(T, leader_epoch=-2, delete=True))
    # The metadata still has the partition, on another broker.
    assert one(call.answer).error_code is ErrorCode.not_leader_or_follower


# ---- bounds of bytes ----


def test_records_are_regions_of_files_and_are_not_read(world: World) -> None:
    world.produce("t", b"a")
    call = world.start(ApiKey.FETCH, 12, **fetch_fields({T: 0}))
    assert [type(piece) for piece in call.response] == [bytes, FileSlice, bytes]


def test_one_batch_is_answered_even_if_it_is_too_large(world: World) -> None:
    world.produce("t", b"x" * 1000)
    world.produce("t", b"y" * 1000)
    fields = fetch_fields({T: 0}, max_bytes=10, partition_max_bytes=10)
    records = one(world.send(ApiKey.FETCH, 12, **fields)).records
    assert values_of(records) == [(0, b"x" * 1000)]


def test_max_bytes_is_shared_in_the_order_of_the_request(world: World) -> None:
    size = len(batch(b"x" * 100))
    for index in range(3):
        world.produce("t", b"x" * 100, partition=index)
    wanted: dict[tuple[str | UUID, int], int] = {("t", i): 0 for i in (2, 0, 1)}
    fields = fetch_fields(wanted, max_bytes=size + 20)
    found = partitions(world.send(ApiKey.FETCH, 12, **fields))
    sizes = [(index, len(each.records)) for (_, index), each in found.items()]
    assert sizes == [(2, size), (0, 0), (1, 0)]
    assert found["t", 1].high_watermark == 1


def test_a_partitions_own_bound_holds(world: World) -> None:
    size = len(batch(b"x"))
    for _ in range(5):
        world.produce("t", b"x")
    fields = fetch_fields({T: 1}, partition_max_bytes=2 * size)
    assert len(one(world.send(ApiKey.FETCH, 12, **fields)).records) == 2 * size


def test_the_brokers_bound_holds(world: World) -> None:
    world = World({"fetch.max.bytes": "1024"})
    world.create("t")
    for _ in range(3):
        world.produce("t", b"x" * 900)
    assert 1000 < len(world.fetch("t").records) < 1100


def test_a_fetch_may_be_preempted_between_partitions(world: World) -> None:
    wanted: dict[tuple[str | UUID, int], int] = {("t", i): 0 for i in range(3)}
    call = world.start(ApiKey.FETCH, 12, **fetch_fields(wanted))
    assert call.preemption_points == 2


# ---- offsets and epochs ----


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_an_offset_outside_the_log_is_refused(world: World, offset: int) -> None:
    world.produce("t", b"a", b"b")
    answer = world.fetch("t", offset)
    assert answer.error_code is ErrorCode.offset_out_of_range
    assert (answer.high_watermark, answer.log_start_offset) == (-1, -1)


def test_the_end_of_the_log_is_not_outside(world: World) -> None:
    world.produce("t", b"a", b"b")
    assert (world.fetch("t", 2).error_code, world.fetch("t", 2).records) == (NONE, b"")


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, NONE),
        (3, ErrorCode.fenced_leader_epoch),
        (4, NONE),
        (5, ErrorCode.unknown_leader_epoch),
    ],
)
def test_the_readers_leader_epoch_must_be_ours(
    world: World, epoch: int, error: ErrorCode
) -> None:
    lead(world, leader=0, leader_epoch=4)
    answer = one(world.send(ApiKey.FETCH, 12, **fetch_fields({T: 0}, epoch=epoch)))
    assert answer.error_code is error


def test_old_consumers_read_from_leaders_only(world: World) -> None:
    world.produce("t", b"a")
    lead(world, leader=2, leader_epoch=1, isr=(0, 2))
    for version, error in (
        (10, ErrorCode.not_leader_or_follower),
        (11, NONE),
        (12, NONE),
    ):
        assert world.fetch("t", version=version).error_code is error
    follower = fetch_fields({T: 0}, replica_id=2)
    answer = one(world.send(ApiKey.FETCH, 12, **follower))
    assert answer.error_code is ErrorCode.not_leader_or_follower


def test_the_new_leader_is_reported_from_version_16_on(world: World) -> None:
    topic_id = world.broker.coordinator.admin.topics["t"].topic_id
    lead(world, leader=2, leader_epoch=7, isr=(0, 2))
    for version, leader in ((15, (-1, -1)), (16, (2, 7))):
        fields = fetch_fields({(topic_id, 0): 0}, epoch=6)
        told = one(world.send(ApiKey.FETCH, version, **fields)).current_leader
        assert (told.leader_id, told.leader_epoch) == leader


def test_a_reader_of_an_older_history_is_told_where_it_diverges(world: World) -> None:
    world.produce("t", b"a", b"b")  # epoch 0: offsets 0 and 1
    lead(world, leader=0, leader_epoch=2)
    world.produce("t", b"c")  # epoch 2: offset 2
    cases = {
        # (last fetched epoch, offset) -> diverging (epoch, end), or (-1, -1).
        (0, 2): (-1, -1),
        (0, 3): (0, 2),
        (1, 3): (0, 2),
        (2, 3): (-1, -1),
    }
    for (epoch, offset), diverging in cases.items():
        fields = fetch_fields({T: offset}, last_fetched_epoch=epoch)
        told = one(world.send(ApiKey.FETCH, 12, **fields))
        found = (told.diverging_epoch.epoch, told.diverging_epoch.end_offset)
        assert found == diverging, (epoch, offset)
        if diverging != (-1, -1):
            assert told.records == b""


def test_before_the_logs_start_nothing_diverges(world: World) -> None:
    """As in Kafka, the offset is out of range for every epoch."""
    world.produce("t", b"a", b"b", b"c")  # epoch 0
    lead(world, leader=0, leader_epoch=5)
    world.produce("t", b"d")
    delete_records_before(world.broker.replicas.partitions[T].log, 3)
    for epoch in (0, 2, 5):
        fields = fetch_fields({T: 1}, last_fetched_epoch=epoch)
        answer = one(world.send(ApiKey.FETCH, 12, **fields))
        assert answer.error_code is ErrorCode.offset_out_of_range, epoch


def test_an_epoch_from_the_future_is_out_of_range(world: World) -> None:
    fields = fetch_fields({T: 0}, last_fetched_epoch=9)
    answer = one(world.send(ApiKey.FETCH, 12, **fields))
    assert answer.error_code is ErrorCode.offset_out_of_range


# ---- topic ids ----


def test_topics_go_by_id_from_version_13_on(world: World) -> None:
    topic_id = world.broker.coordinator.admin.topics["t"].topic_id
    world.produce("t", b"a")
    answer = world.send(ApiKey.FETCH, 13, **fetch_fields({(topic_id, 0): 0}))
    assert answer.responses[0].topic_id == topic_id
    assert values_of(one(answer).records) == [(0, b"a")]
    unknown = world.send(ApiKey.FETCH, 13, **fetch_fields({(UUID(int=5), 0): 0}))
    assert one(unknown).error_code is ErrorCode.unknown_topic_id


# ---- followers ----


def test_followers_read_beyond_the_high_watermark_and_move_it(world: World) -> None:
    lead(world, leader=0, leader_epoch=1, isr=(0, 2))
    world.produce("t", b"a", b"b")
    assert world.fetch("t").records == b""
    first = one(world.send(ApiKey.FETCH, 12, **fetch_fields({T: 0}, replica_id=2)))
    assert len(values_of(first.records)) == 2
    assert first.high_watermark == 0
    world.send(ApiKey.FETCH, 12, **fetch_fields({T: 2}, replica_id=2))
    assert world.fetch("t").high_watermark == 2


def test_a_waiting_consumer_is_answered_when_a_follower_catches_up(
    world: World,
) -> None:
    lead(world, leader=0, leader_epoch=1, isr=(0, 2))
    world.produce("t", b"a")
    consumer = world.start(ApiKey.FETCH, 12, **fetch_fields({T: 0}, **WAITING))
    assert not consumer.done
    world.send(ApiKey.FETCH, 12, **fetch_fields({T: 1}, replica_id=2))
    assert values_of(one(consumer.answer).records) == [(0, b"a")]


def test_a_waiting_follower_is_answered_by_an_append(world: World) -> None:
    lead(world, leader=0, leader_epoch=1, isr=(0, 2))
    fields = fetch_fields({T: 0}, replica_id=2, **WAITING)
    follower = world.start(ApiKey.FETCH, 12, **fields)
    assert not follower.done
    world.produce("t", b"a")
    assert values_of(one(follower.answer).records) == [(0, b"a")]


def test_a_follower_says_how_far_it_is_when_it_asks_not_when_it_is_answered(
    world: World,
) -> None:
    """A follower may fail while its Fetch waits (Kafka's ``readFromPurgatory``)."""
    lead(world, leader=0, leader_epoch=1, isr=(0, 2))
    fields = fetch_fields({T: 0}, replica_id=2, **WAITING)
    follower = world.start(ApiKey.FETCH, 12, **fields)
    asked_ns = world.now_ns
    world.pass_ms(2_000)
    assert follower.done
    known = world.broker.replicas.partitions[T].followers[2]
    assert (known.last_fetch_ns, known.caught_up_ns) == (asked_ns, asked_ns)


def test_a_follower_outside_the_replicas_is_refused(world: World) -> None:
    for epoch, error in (
        (-1, ErrorCode.not_leader_or_follower),
        (0, ErrorCode.unknown_leader_epoch),
    ):
        fields = fetch_fields({T: 0}, replica_id=8, epoch=epoch)
        assert one(world.send(ApiKey.FETCH, 12, **fields)).error_code is error


def test_the_replica_id_of_version_15_is_read_from_its_tag(world: World) -> None:
    topic_id = world.broker.coordinator.admin.topics["t"].topic_id
    lead(world, leader=0, leader_epoch=1, isr=(0, 2))
    world.produce("t", b"a")
    state = {"replica_id": 2, "replica_epoch": -1}
    fields = fetch_fields({(topic_id, 0): 1}, replica_state=state)
    world.send(ApiKey.FETCH, 15, **fields)
    assert world.fetch("t").high_watermark == 1


def test_fetches_under_another_epoch_do_not_count(world: World) -> None:
    lead(world, leader=0, leader_epoch=1, isr=(0, 2))
    world.produce("t", b"a")
    world.send(ApiKey.FETCH, 12, **fetch_fields({T: 0}, replica_id=2))
    lead(world, leader=0, leader_epoch=2, isr=(0, 2))
    assert world.broker.replicas.partitions[T].followers[2].log_end_offset == -1
    assert world.fetch("t").high_watermark == 0


def test_readers_of_committed_records_get_an_empty_list_of_aborts(
    world: World,
) -> None:
    world.produce("t", b"a")
    for level, aborted in ((0, None), (1, ())):
        fields = fetch_fields({T: 0}, isolation_level=level)
        answer = one(world.send(ApiKey.FETCH, 12, **fields))
        assert answer.aborted_transactions == aborted
        assert answer.last_stable_offset == 1


# ---- sessions ----


def test_a_session_is_answered_with_what_is_new(world: World) -> None:
    wanted: dict[tuple[str | UUID, int], int] = {("t", i): 0 for i in range(3)}
    first = world.send(ApiKey.FETCH, 12, **fetch_fields(wanted, session_epoch=0))
    assert (first.error_code, len(partitions(first))) == (NONE, 3)
    session = {"session_id": first.session_id, "max_wait_ms": 500}
    waiting = world.start(
        ApiKey.FETCH, 12, **fetch_fields({}, session_epoch=1, **session)
    )
    assert not waiting.done
    world.produce("t", b"x", partition=2)
    assert list(partitions(waiting.answer)) == [("t", 2)]
    again = {**session, "session_epoch": 1}
    stale = world.send(ApiKey.FETCH, 12, **fetch_fields({}, **again))
    assert stale.error_code is ErrorCode.invalid_fetch_session_epoch
    forgotten = [{"topic": "t", "partitions": [0, 1]}]
    moved = fetch_fields({("t", 2): 1}, session_epoch=2, **session)
    last = world.start(
        ApiKey.FETCH, 12, **{**moved, "forgotten_topics_data": forgotten}
    )
    world.produce("t", b"y")
    assert not last.done
    world.produce("t", b"z", partition=2)
    assert list(partitions(last.answer)) == [("t", 2)]


def test_a_session_of_topic_ids_stays_one(world: World) -> None:
    topic_id = world.broker.coordinator.admin.topics["t"].topic_id
    fields = fetch_fields({(topic_id, 0): 0}, session_epoch=0)
    session_id = world.send(ApiKey.FETCH, 13, **fields).session_id
    by_name = fetch_fields({}, session_epoch=1, session_id=session_id)
    refused = world.send(ApiKey.FETCH, 12, **by_name)
    assert refused.error_code is ErrorCode.fetch_session_topic_id_error
