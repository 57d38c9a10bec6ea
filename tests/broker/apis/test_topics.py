"""CreateTopics, DeleteTopics, CreatePartitions, and their effects after a restart."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    leader_and_isr,
    new_topic,
    produce_fields,
    update_metadata,
    values_of,
)


def create(world: World, *topics: Any, version: int = 7, **fields: Any) -> Any:
    answer = world.send(
        ApiKey.CREATE_TOPICS, version, topics=topics, timeout=SECONDS_30, **fields
    )
    return answer.topics


def delete(world: World, version: int = 6, **fields: Any) -> Any:
    answer = world.send(ApiKey.DELETE_TOPICS, version, timeout=SECONDS_30, **fields)
    return answer.responses


def extend(world: World, *topics: Any, **fields: Any) -> Any:
    return world.send(ApiKey.CREATE_PARTITIONS, 3, topics=topics, **fields).results


def error_of(rows: Any) -> ErrorCode:
    (row,) = rows
    assert (row.error_message is None) == (row.error_code is NONE)
    error: ErrorCode = row.error_code
    return error


# ---- CreateTopics ----


def test_a_topic_is_created_as_asked_and_the_answer_says_how() -> None:
    world = World()
    (row,) = create(world, new_topic("t", 3, configs=[("retention.ms", "5")]))
    assert (row.error_code, row.num_partitions, row.replication_factor) == (NONE, 3, 1)
    assert row.topic_id == world.broker.coordinator.admin.topics["t"].topic_id
    (config,) = [each for each in row.configs if each.name == "retention.ms"]
    # Kafka's DYNAMIC_TOPIC_CONFIG is 1.
    assert (config.value, config.config_source) == ("5", 1)
    assert world.broker.logs.logs["t", 2].config.retention_ms == 5


def test_minus_one_stands_for_the_brokers_defaults() -> None:
    world = World({"num.partitions": "4"})
    (row,) = create(world, new_topic("t", -1, replication_factor=-1))
    assert (row.error_code, row.num_partitions) == (NONE, 4)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (new_topic("there"), ErrorCode.topic_already_exists),
        (new_topic("the_re"), ErrorCode.invalid_topic_exception),
        (new_topic("a b"), ErrorCode.invalid_topic_exception),
        (new_topic(""), ErrorCode.invalid_topic_exception),
        (new_topic("t", 0), ErrorCode.invalid_partitions),
        (new_topic("t", -2), ErrorCode.invalid_partitions),
        (new_topic("t", 10_001), ErrorCode.policy_violation),
        (new_topic("t", replication_factor=0), ErrorCode.invalid_replication_factor),
        (new_topic("t", replication_factor=2), ErrorCode.invalid_replication_factor),
        (new_topic("t", configs=[("no.such", "1")]), ErrorCode.invalid_config),
        (new_topic("t", configs=[("retention.ms", "x")]), ErrorCode.invalid_config),
        (new_topic("t", configs=[("retention.ms", None)]), ErrorCode.invalid_config),
        (new_topic("t", configs=[("cleanup.policy", "x")]), ErrorCode.invalid_config),
        (
            new_topic(
                "t",
                configs=[
                    ("min.compaction.lag.ms", "9"),
                    ("max.compaction.lag.ms", "8"),
                ],
            ),
            ErrorCode.invalid_config,
        ),
    ],
)
def test_an_invalid_topic_is_refused_and_leaves_nothing(
    topic: dict[str, Any], error: ErrorCode
) -> None:
    world = World()
    world.create("there")
    world.create("the.re")
    assert error_of(create(world, topic)) is error
    assert sorted(world.broker.coordinator.admin.topics) == ["the.re", "there"]
    assert len(world.broker.logs.logs) == 2


def assigned(*replicas: list[int], first: int = 0, **fields: Any) -> dict[str, Any]:
    assignments = [
        {"partition_index": first + index, "broker_ids": each}
        for index, each in enumerate(replicas)
    ]
    fields = {"num_partitions": -1, "replication_factor": -1, **fields}
    return {**new_topic("t"), "assignments": assignments, **fields}


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (assigned([0], [0]), NONE),
        (assigned([0], num_partitions=1), ErrorCode.invalid_request),
        (assigned([0], first=1), ErrorCode.invalid_replica_assignment),
        (assigned([0], [1]), ErrorCode.invalid_replica_assignment),
        (assigned([0, 0]), ErrorCode.invalid_replica_assignment),
        (assigned([]), ErrorCode.invalid_replica_assignment),
    ],
)
def test_replicas_can_be_assigned_where_brokers_are(
    topic: dict[str, Any], error: ErrorCode
) -> None:
    assert error_of(create(World(), topic)) is error


def test_a_name_that_is_given_twice_fails_once_and_no_other_does() -> None:
    rows = create(World(), new_topic("a"), new_topic("b"), new_topic("a"))
    assert [(row.name, row.error_code) for row in rows] == [
        ("a", ErrorCode.invalid_request),
        ("b", NONE),
    ]


def test_validating_creates_nothing() -> None:
    world = World()
    rows = create(world, new_topic("t", 2), new_topic("..", 1), validate_only=True)
    assert [row.error_code for row in rows] == [NONE, ErrorCode.invalid_topic_exception]
    assert world.broker.coordinator.admin.topics == {}


def test_creating_can_be_preempted_between_partitions() -> None:
    world = World()
    call = world.start(
        ApiKey.CREATE_TOPICS, 7, topics=[new_topic("t", 5)], timeout=SECONDS_30
    )
    assert call.preemption_points >= 5


# ---- DeleteTopics ----


def test_a_deleted_topic_is_gone_for_clients_replicas_and_disk() -> None:
    world = World()
    world.create("t", 2)
    world.produce("t", b"x")
    assert error_of(delete(world, topics=[{"name": "t"}])) is NONE
    gone = world.send(
        ApiKey.METADATA, 12, topics=[{"name": "t"}], allow_auto_topic_creation=False
    )
    assert gone.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    answer = world.produce("t", b"y")
    assert answer.error_code is ErrorCode.unknown_topic_or_partition
    left = [name for name in world.storage.names("/data") if name.startswith("t-")]
    assert [name[-7:] for name in left] == ["-delete"] * 2
    assert world.restarted().broker.coordinator.admin.topics == {}


def test_a_topic_of_the_same_name_is_a_new_one() -> None:
    world = World()
    before = world.create("t")
    world.produce("t", b"old")
    delete(world, topics=[{"name": "t"}])
    after = world.create("t")
    assert before != after
    assert world.fetch("t").high_watermark == 0
    world.check()


def test_topics_are_deleted_by_name_or_by_id_but_not_by_both() -> None:
    world = World()
    topic_id = world.create("t")
    both = delete(world, topics=[{"name": "t", "topic_id": topic_id}])
    assert error_of(both) is ErrorCode.invalid_request
    neither = delete(world, topics=[{"name": None, "topic_id": None}])
    assert error_of(neither) is ErrorCode.invalid_request
    stranger = delete(world, topics=[{"name": None, "topic_id": UUID(int=9)}])
    assert error_of(stranger) is ErrorCode.unknown_topic_id
    (row,) = delete(world, topics=[{"name": None, "topic_id": topic_id}])
    assert (row.error_code, row.name) == (NONE, "t")


@pytest.mark.parametrize(
    ("version", "error"),
    [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)],
)
def test_deletion_can_be_switched_off(version: int, error: ErrorCode) -> None:
    world = World({"delete.topic.enable": "false"})
    world.create("t")
    (row,) = delete(world, version, topic_names=["t"])
    assert row.error_code is error
    assert "t" in world.broker.coordinator.admin.topics


def test_requests_that_wait_for_a_deleted_topic_are_answered() -> None:
    world = World()
    world.create("t")
    key = ("t", 0)
    world.command(
        ApiKey.LEADER_AND_ISR, leader_and_isr(key, leader=0, leader_epoch=1, isr=(0, 2))
    )
    produce = world.start(ApiKey.PRODUCE, 9, **produce_fields({key: batch(b"a")}, -1))
    fetch = world.start(ApiKey.FETCH, 12, **fetch_fields({key: 0}, max_wait_ms=500))
    delete(world, topics=[{"name": "t"}])
    unknown = ErrorCode.unknown_topic_or_partition
    partition = produce.answer.responses[0].partition_responses[0]
    assert partition.error_code is unknown
    assert fetch.answer.responses[0].partitions[0].error_code is unknown


# ---- CreatePartitions ----


def test_partitions_are_added_and_the_old_ones_stay() -> None:
    world = World()
    world.create("t", 2)
    world.produce("t", b"x", partition=1)
    assert error_of(extend(world, {"name": "t", "count": 4})) is NONE
    assert world.produce("t", b"y", partition=3).error_code is NONE
    answer = world.send(ApiKey.METADATA, 12, topics=None)
    assert len(answer.topics[0].partitions) == 4
    after = world.restarted()
    assert after.produce("t", b"z", partition=3).base_offset == 1


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ({"name": "t", "count": 2}, ErrorCode.invalid_partitions),
        ({"name": "t", "count": 1}, ErrorCode.invalid_partitions),
        ({"name": "t", "count": -1}, ErrorCode.invalid_partitions),
        ({"name": "t", "count": 10_003}, ErrorCode.policy_violation),
        ({"name": "nope", "count": 3}, ErrorCode.unknown_topic_or_partition),
        (
            {"name": "t", "count": 3, "assignments": [{"broker_ids": [5]}]},
            ErrorCode.invalid_replica_assignment,
        ),
        (
            {"name": "t", "count": 4, "assignments": [{"broker_ids": [0]}]},
            ErrorCode.invalid_replica_assignment,
        ),
        ({"name": "t", "count": 3, "assignments": [{"broker_ids": [0]}]}, NONE),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    topic: dict[str, Any], error: ErrorCode
) -> None:
    world = World()
    world.create("t", 2)
    assert error_of(extend(world, topic)) is error
    count = len(world.broker.coordinator.admin.topics["t"].leader_epochs)
    assert count == (3 if error is NONE else 2)


def test_validating_adds_nothing_and_twice_is_an_error() -> None:
    world = World()
    world.create("t", 2)
    assert error_of(extend(world, {"name": "t", "count": 3}, validate_only=True)) is (
        NONE
    )
    twice = extend(world, {"name": "t", "count": 3}, {"name": "t", "count": 4})
    assert {row.error_code for row in twice} == {ErrorCode.invalid_request}
    assert len(world.broker.coordinator.admin.topics["t"].leader_epochs) == 2


# ---- restart ----


def test_topics_records_ids_and_configs_survive_a_kill() -> None:
    world = World()
    topic_id = world.create("t", 2, retention_ms="123456")
    world.produce("t", b"a", b"b")
    after = world.restarted()
    assert values_of(after.fetch("t").records) == [(0, b"a"), (1, b"b")]
    assert after.broker.coordinator.admin.topics["t"].topic_id == topic_id
    assert after.broker.logs.logs["t", 0].config.retention_ms == 123_456
    assert after.broker.cluster_id == world.broker.cluster_id
    assert after.produce("t", b"c").base_offset == 2
    after.check()


def test_a_start_leads_under_a_new_epoch_beyond_any_that_was_heard() -> None:
    world = World()
    world.create("t")
    key = ("t", 0)
    assert world.restarted().broker.replicas.partitions[key].leader_epoch == 1
    heard = leader_and_isr(key, leader=0, leader_epoch=40)
    world.command(ApiKey.LEADER_AND_ISR, heard)
    world.produce("t", b"written in epoch 40")
    after = world.restarted()
    assert after.broker.replicas.partitions[key].leader_epoch == 41
    assert after.restarted().broker.replicas.partitions[key].leader_epoch == 42


def test_an_idempotent_producer_is_known_after_a_restart() -> None:
    world = World()
    world.create("t")
    ids = [world.send(ApiKey.INIT_PRODUCER_ID, 4).producer_id for _ in range(3)]
    records = batch(b"a", producer=(ids[0], 0, 0))
    world.send(ApiKey.PRODUCE, 9, **produce_fields({("t", 0): records}))
    after = world.restarted()
    again = after.send(ApiKey.PRODUCE, 9, **produce_fields({("t", 0): records}))
    assert again.responses[0].partition_responses[0].base_offset == 0
    assert after.fetch("t").high_watermark == 1
    later = after.send(ApiKey.INIT_PRODUCER_ID, 4)
    assert (len(set(ids)), later.producer_epoch) == (3, 0)
    assert later.producer_id > max(ids)


def test_a_topic_that_a_controller_says_has_no_replicas_gets_no_partitions() -> None:
    """`make fuzz`, seed 320: the search for the first replica failed."""
    world = World()
    create(world, new_topic("t"))
    told = update_metadata(("t", 0), leader=-1, replicas=())
    world.command(ApiKey.UPDATE_METADATA, told)
    wanted = {"name": "t", "count": 2}
    assert error_of(extend(world, wanted)) is ErrorCode.unknown_topic_or_partition
