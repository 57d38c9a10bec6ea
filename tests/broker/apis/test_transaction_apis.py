"""WriteTxnMarkers, TxnOffsetCommit and DescribeProducers, through the whole broker."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MESSAGE_CHARS_MAX, ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import fetch_fields, leader_and_isr, values_of
from tests.broker.apis.test_transactional_produce import Verifier, produce, sent

NONE = ErrorCode.none
OFFSETS = "__consumer_offsets"


@pytest.fixture
def world() -> World:
    world = World()
    world.create("t", 2)
    world.broker.verify_transaction = Verifier()
    # The first request creates the offsets topic, and the second finds it.
    for _ in range(2):
        world.send(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    return world


def marker(*keys: tuple[str, int], **fields: Any) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    return {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [
            {"name": name, "partition_indexes": indexes}
            for name, indexes in topics.items()
        ],
        "coordinator_epoch": 3,
        **fields,
    }


def outcomes(answer: Any) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (each.producer_id, topic.name, row.partition_index): row.error_code
        for each in answer.markers
        for topic in each.topics
        for row in topic.partitions
    }


def write(
    world: World, *markers: dict[str, Any], version: int = 1
) -> dict[Any, ErrorCode]:
    return outcomes(world.send(ApiKey.WRITE_TXN_MARKERS, version, markers=markers))


def offsets_partition(world: World) -> int:
    return world.broker.groups.partition_for("g")


def commit(world: World, offset: int, version: int = 3, **fields: Any) -> ErrorCode:
    row = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    given = {
        "transactional_id": "tx",
        "group_id": "g",
        "producer_id": 7,
        "producer_epoch": 0,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "topic_id": topic_id(world), "partitions": [row]}],
    }
    answer = world.send(ApiKey.TXN_OFFSET_COMMIT, version, **{**given, **fields})
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def topic_id(world: World) -> UUID:
    answer = world.send(ApiKey.METADATA, 12, topics=[{"name": "t"}])
    found: UUID = answer.topics[0].topic_id
    return found


def committed(world: World) -> tuple[int, ErrorCode]:
    answer = world.send(
        ApiKey.OFFSET_FETCH,
        7,
        group_id="g",
        topics=[{"name": "t", "partition_indexes": [0]}],
        require_stable=True,
    )
    row = answer.topics[0].partitions[0]
    return row.committed_offset, row.error_code


def described(world: World, key: tuple[str, int] = ("t", 0)) -> Any:
    topics = [{"name": key[0], "partition_indexes": [key[1]]}]
    answer = world.send(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    return answer.topics[0].partitions[0]


# ---- markers ----


def test_markers_end_transactions_where_they_are_written(world: World) -> None:
    produce(world, {("t", 0): sent(), ("t", 1): sent()})
    assert world.fetch("t").last_stable_offset == 0
    found = write(world, marker(("t", 0), ("t", 1), transaction_result=False))
    assert found == {(7, "t", 0): NONE, (7, "t", 1): NONE}
    fields = fetch_fields({("t", 0): 0}, isolation_level=1)
    read = world.send(ApiKey.FETCH, 12, **fields).responses[0].partitions[0]
    assert (read.high_watermark, read.last_stable_offset) == (2, 2)
    told = [(each.producer_id, each.first_offset) for each in read.aborted_transactions]
    assert told == [(7, 0)]
    assert len(values_of(read.records)) == 2
    world.check()


def test_each_partition_of_a_marker_fails_alone(world: World) -> None:
    produce(world, {("t", 0): sent(epoch=1)})
    found = write(
        world,
        marker(("t", 0), ("t", 1), ("t", 9), ("u", 0)),
        marker(("t", 0), producer_id=8, producer_epoch=0),
    )
    assert found == {
        (7, "t", 0): ErrorCode.invalid_producer_epoch,
        (7, "t", 1): NONE,
        (7, "t", 9): ErrorCode.unknown_topic_or_partition,
        (7, "u", 0): ErrorCode.unknown_topic_or_partition,
        (8, "t", 0): NONE,
    }
    fenced = write(world, marker(("t", 1), coordinator_epoch=2))
    assert fenced == {(7, "t", 1): ErrorCode.transaction_coordinator_fenced}


@pytest.mark.parametrize("transaction_version", range(4))
def test_a_marker_of_raised_epochs_ends_no_transaction_of_its_own_epoch(
    world: World, transaction_version: int
) -> None:
    def end(epoch: int) -> ErrorCode:
        fields = {"producer_epoch": epoch, "transaction_version": transaction_version}
        (code,) = write(world, marker(("t", 0), **fields), version=2).values()
        return code

    def is_open() -> bool:
        found = world.fetch("t")
        return bool(found.last_stable_offset < found.high_watermark)

    late = ErrorCode.invalid_producer_epoch if transaction_version >= 2 else NONE
    for epoch in (0, 1, 32_766):
        produce(world, {("t", 0): sent(epoch=epoch)})
        assert end(epoch) is late
        assert is_open() is (late is not NONE)
        assert end(epoch + 1) is NONE
        # A coordinator without an answer repeats its marker.
        assert end(epoch + 1) is NONE
        assert end(epoch) is ErrorCode.invalid_producer_epoch
        assert not is_open()
    # 32,767 is the highest epoch.
    produce(world, {("t", 0): sent(epoch=32_767)})
    assert end(32_767) is NONE
    assert not is_open()
    world.check()


def test_a_marker_is_answered_when_followers_have_it(world: World) -> None:
    word = leader_and_isr(("t", 0), leader=0, leader_epoch=5, isr=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, word)
    call = world.start(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker(("t", 0))])
    assert not call.done
    world.send(ApiKey.FETCH, 12, **fetch_fields({("t", 0): 1}, replica_id=2))
    assert outcomes(call.answer) == {(7, "t", 0): NONE}


def test_a_marker_that_is_not_replicated_times_out(world: World) -> None:
    word = leader_and_isr(("t", 0), leader=0, leader_epoch=5, isr=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, word)
    call = world.start(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker(("t", 0))])
    world.pass_ms(30_001)
    assert outcomes(call.answer) == {(7, "t", 0): ErrorCode.request_timed_out}


def test_a_client_may_not_write_markers() -> None:
    world = World({"doorkeeper.controller.listeners": "CONTROLLER"})
    world.create("t")
    call = world.start(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker(("t", 0))])
    denied = ErrorCode.cluster_authorization_failed
    assert call.closed or outcomes(call.answer) == {(7, "t", 0): denied}
    assert world.broker.logs.logs[TopicPartition("t", 0)].log_end_offset == 0


def test_markers_can_be_preempted_between_two_partitions(world: World) -> None:
    keys = [("t", 0), ("t", 1)]
    call = world.start(ApiKey.WRITE_TXN_MARKERS, 1, stop_at=1, markers=[marker(*keys)])
    logs = world.broker.logs.logs
    assert [logs[TopicPartition(*key)].log_end_offset for key in keys] == [1, 0]
    call.go_on()
    assert set(outcomes(call.answer).values()) == {NONE}


# ---- offsets of transactions ----


@pytest.mark.parametrize("version", range(7))
def test_offsets_are_shown_when_the_marker_is_written(
    world: World, version: int
) -> None:
    assert commit(world, 5, version) is NONE
    assert committed(world) == (-1, ErrorCode.unstable_offset_commit)
    key = (OFFSETS, offsets_partition(world))
    assert write(world, marker(key)) == {(7, *key): NONE}
    assert committed(world) == (5, NONE)
    assert commit(world, 9, version) is NONE
    write(world, marker(key, transaction_result=False))
    assert committed(world) == (5, NONE)
    world.check()


def test_open_offsets_are_known_after_a_restart(world: World) -> None:
    assert commit(world, 5) is NONE
    again = world.restarted()
    again.broker.verify_transaction = Verifier()
    assert committed(again) == (-1, ErrorCode.unstable_offset_commit)
    write(again, marker((OFFSETS, offsets_partition(again))))
    assert committed(again) == (5, NONE)
    assert committed(again.restarted()) == (5, NONE)


def test_a_zombie_commits_nothing(world: World) -> None:
    key = (OFFSETS, offsets_partition(world))
    assert commit(world, 5) is NONE
    write(world, marker(key, producer_epoch=1, transaction_result=False))
    assert commit(world, 6) is ErrorCode.invalid_producer_epoch
    assert committed(world) == (-1, NONE)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.transaction_abortable, 4, ErrorCode.transaction_abortable),
        (ErrorCode.transaction_abortable, 3, ErrorCode.invalid_txn_state),
        (ErrorCode.producer_fenced, 3, ErrorCode.invalid_producer_epoch),
        (ErrorCode.network_exception, 3, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.network_exception, 1, ErrorCode.coordinator_not_available),
    ],
)
def test_offsets_need_a_transaction_that_has_their_group(
    world: World, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    verifier = Verifier()
    verifier.answers[TopicPartition(OFFSETS, offsets_partition(world))] = said
    world.broker.verify_transaction = verifier
    assert commit(world, 5, version) is told
    assert committed(world) == (-1, NONE)


def test_errors_of_offsets_in_transactions(world: World) -> None:
    assert commit(world, 5, group_id="") is ErrorCode.invalid_group_id
    assert commit(world, 5, generation_id=3) is ErrorCode.illegal_generation
    missing = commit(world, 5, version=6, generation_id=3)
    assert missing is ErrorCode.group_id_not_found
    row = {"partition_index": 9, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [row]}]
    unknown = ErrorCode.unknown_topic_or_partition
    assert commit(world, 5, topics=topics) is unknown
    long = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_metadata": "x" * 5000,
    }
    topics = [{"name": "t", "partitions": [long]}]
    assert commit(world, 5, topics=topics) is ErrorCode.offset_metadata_too_large


def test_an_unknown_topic_id_fails_alone(world: World) -> None:
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    ids = (UUID(int=77), topic_id(world), UUID(int=0))
    answer = world.send(
        ApiKey.TXN_OFFSET_COMMIT,
        6,
        transactional_id="tx",
        group_id="g",
        producer_id=7,
        topics=[{"topic_id": it, "partitions": [row]} for it in ids],
    )
    found = [(it.topic_id, it.partitions[0].error_code) for it in answer.topics]
    unknown = ErrorCode.unknown_topic_id
    # kio reads the zero id as None.
    assert found == [(ids[0], unknown), (ids[1], NONE), (None, unknown)]
    write(world, marker((OFFSETS, offsets_partition(world))))
    assert committed(world) == (5, NONE)


# ---- producers ----


def test_producers_are_described_with_their_open_transactions(world: World) -> None:
    produce(world, {("t", 0): sent()})
    (one,) = described(world).active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (7, 0, 0)
    assert (one.coordinator_epoch, one.current_txn_start_offset) == (-1, 0)
    assert one.last_timestamp > 0
    write(world, marker(("t", 0)))
    (one,) = described(world).active_producers
    assert (one.coordinator_epoch, one.current_txn_start_offset) == (3, -1)


def test_only_a_leader_describes_producers(world: World) -> None:
    unknown = described(world, ("t", 9))
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition
    bad = described(world, ("a/b", 0))
    assert bad.error_code is ErrorCode.invalid_topic_exception
    world.live(2)
    word = leader_and_isr(("t", 0), leader=2, leader_epoch=5, isr=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, word)
    follower = described(world)
    assert follower.error_code is ErrorCode.not_leader_or_follower
    assert follower.active_producers == ()


def test_a_long_name_is_quoted_in_part_in_each_of_many_rows(world: World) -> None:
    """Otherwise a request of 70 kB could have an answer of 130 MB."""
    topics = [{"name": "x" * 0x7FFF, "partition_indexes": list(range(2_000))}]
    answer = world.send(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    rows = answer.topics[0].partitions
    assert len(rows) == 2_000
    assert {each.error_code for each in rows} == {ErrorCode.invalid_topic_exception}
    assert {len(each.error_message) for each in rows} == {MESSAGE_CHARS_MAX}
