"""Answers that once differed from those of Apache Kafka."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import SECONDS_30, new_topic

INVALID = ErrorCode.invalid_request
ALL_ON_A_TOPIC = 3576


@pytest.fixture
def world() -> World:
    world = World()
    world.create("t", 2)
    return world


def test_eligible_leader_replicas_are_empty_lists_which_java_can_read(
    world: World,
) -> None:
    answer = world.send(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": "t"}],
        response_partition_limit=9,
    )
    partition = answer.topics[0].partitions[0]
    assert partition.eligible_leader_replicas == ()
    assert partition.last_known_elr == ()


def test_a_full_page_ends_before_an_unknown_topic_too(world: World) -> None:
    answer = world.send(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": "t"}, {"name": "unknown"}],
        response_partition_limit=2,
    )
    assert [topic.name for topic in answer.topics] == ["t"]
    assert answer.next_cursor.topic_name == "unknown"


def test_a_topic_that_is_to_be_created_twice_is_answered_once(world: World) -> None:
    answer = world.send(
        ApiKey.CREATE_TOPICS,
        7,
        topics=[new_topic("twice"), new_topic("twice")],
        timeout=SECONDS_30,
    )
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("twice", INVALID)
    ]
    assert answer.topics[0].configs == ()


def test_a_topic_that_is_to_grow_twice_is_answered_once(world: World) -> None:
    growing = {"name": "t", "count": 5, "assignments": None}
    answer = world.send(
        ApiKey.CREATE_PARTITIONS, 3, topics=[growing, growing], timeout=SECONDS_30
    )
    assert [(each.name, each.error_code) for each in answer.results] == [("t", INVALID)]


def test_a_deletion_by_name_is_answered_with_the_id(world: World) -> None:
    topic_id = world.create("gone")
    answer = world.send(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": "gone"}], timeout=SECONDS_30
    )
    assert topic_id != UUID(int=0)
    assert (answer.responses[0].name, answer.responses[0].topic_id) == (
        "gone",
        topic_id,
    )


def test_operations_on_an_unknown_topic_are_reported_if_asked(world: World) -> None:
    answer = world.send(
        ApiKey.METADATA,
        12,
        topics=[{"name": "a/b"}],
        include_topic_authorized_operations=True,
    )
    assert answer.topics[0].topic_authorized_operations == ALL_ON_A_TOPIC


def test_a_wrong_endpoint_type_is_told_nothing_of_the_cluster(world: World) -> None:
    answer = world.send(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=2)
    assert answer.error_code is ErrorCode.mismatched_endpoint_type
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, ())


@pytest.mark.parametrize(("producer", "epoch"), [(5, -1), (-1, 3)])
def test_half_a_producer_identity_is_refused(
    world: World, producer: int, epoch: int
) -> None:
    answer = world.send(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=None,
        producer_id=producer,
        producer_epoch=epoch,
    )
    assert (answer.error_code, answer.producer_id) == (INVALID, -1)


def listed(world: World, version: int, *wanted: dict[str, Any]) -> list[Any]:
    answer = world.send(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=-1,
        topics=[{"name": "t", "partitions": list(wanted)}],
    )
    return [
        (each.error_code, each.offset, each.leader_epoch)
        for each in answer.topics[0].partitions
    ]


def test_a_partition_listed_twice_is_refused_both_times(world: World) -> None:
    wanted = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    assert listed(world, 9, wanted, wanted) == [(INVALID, -1, -1)] * 2


def test_a_special_time_stamp_of_a_later_version_is_refused_before_all_else(
    world: World,
) -> None:
    unknown = {"partition_index": 7, "timestamp": -3, "current_leader_epoch": 9}
    unsupported = ErrorCode.unsupported_version
    assert listed(world, 6, unknown) == [(unsupported, -1, -1)]


def test_the_start_of_an_empty_log_is_of_the_present_epoch(world: World) -> None:
    start = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
    assert listed(world, 9, start) == [(ErrorCode.none, 0, 0)]


def test_no_config_keys_mean_all_configs_as_null_does(world: World) -> None:
    def described(keys: list[str] | None) -> list[str]:
        wanted = {
            "resource_type": 2,
            "resource_name": "t",
            "configuration_keys": keys,
        }
        answer = world.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted])
        return [each.name for each in answer.results[0].configs]

    assert described([]) == described(None)
    assert described(["retention.ms"]) == ["retention.ms"]


def test_a_default_of_null_is_no_synonym(world: World) -> None:
    wanted = {
        "resource_type": 4,
        "resource_name": "0",
        "configuration_keys": ["log.retention.ms"],
    }
    answer = world.send(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted], include_synonyms=True
    )
    (config,) = answer.results[0].configs
    assert (config.value, config.synonyms) == (None, ())


def test_a_config_that_is_set_to_null_is_a_bad_request(world: World) -> None:
    unset = {"name": "retention.ms", "config_operation": 0, "value": None}
    changed = {"resource_type": 2, "resource_name": "t", "configs": [unset]}
    answer = world.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[changed])
    assert answer.responses[0].error_code is INVALID


def test_an_election_that_is_refused_states_the_reason(world: World) -> None:
    answer = world.send(
        ApiKey.ELECT_LEADERS,
        2,
        election_type=0,
        topic_partitions=[{"topic": "t", "partitions": [0, 7]}],
    )
    found = answer.replica_election_results[0].partition_result
    assert [each.error_code for each in found] == [
        ErrorCode.election_not_needed,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert all(each.error_message for each in found)


def test_a_topic_named_twice_is_reported_once(world: World) -> None:
    for version in (0, 12):
        answer = world.send(
            ApiKey.METADATA, version, topics=[{"name": "t"}, {"name": "t"}]
        )
        assert [topic.name for topic in answer.topics] == ["t"]


def test_a_topic_that_is_to_be_deleted_twice_stays(world: World) -> None:
    (known,) = world.send(ApiKey.METADATA, 12, topics=[{"name": "t"}]).topics
    by_id = {"name": None, "topic_id": known.topic_id}
    for topics, name, topic_id in (
        ([{"name": "t"}, {"name": "t"}], "t", None),
        ([by_id, by_id], None, known.topic_id),
        ([by_id, {"name": "t"}], "t", known.topic_id),
        ([{"name": "t"}, by_id], "t", known.topic_id),
    ):
        answer = world.send(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=SECONDS_30)
        (row,) = answer.responses
        assert (row.error_code, row.name, row.topic_id) == (INVALID, name, topic_id)
    answer = world.send(ApiKey.DELETE_TOPICS, 6, topics=[by_id], timeout=SECONDS_30)
    assert answer.responses[0].error_code is ErrorCode.none


def test_a_cursor_has_to_be_at_a_topic_that_is_named(world: World) -> None:
    for cursor in (("u", 0), ("t", -1)):
        answer = world.send(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[{"name": "t"}],
            response_partition_limit=9,
            cursor={"topic_name": cursor[0], "partition_index": cursor[1]},
        )
        (row,) = answer.topics
        assert (row.error_code, row.partitions) == (INVALID, ())


def test_a_brokers_config_shows_every_place_it_was_set(world: World) -> None:
    key = "log.retention.ms"
    for name, value in (("", "7000"), ("0", "8000")):
        entry = {"name": key, "config_operation": 0, "value": value}
        told = {"resource_type": 4, "resource_name": name, "configs": [entry]}
        world.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[told])
    for kind, name, shown in ((4, "0", key), (2, "t", "retention.ms")):
        wanted = {
            "resource_type": kind,
            "resource_name": name,
            "configuration_keys": [shown],
        }
        answer = world.send(
            ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted], include_synonyms=True
        )
        (config,) = answer.results[0].configs
        assert [(each.value, each.source) for each in config.synonyms][:2] == [
            ("8000", 2),
            ("7000", 3),
        ]
