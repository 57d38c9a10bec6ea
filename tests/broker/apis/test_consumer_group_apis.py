"""ConsumerGroupHeartbeat, ConsumerGroupDescribe, and other APIs of these groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.group_client import NONE, TOPIC_IDS, Client, versions


@pytest.fixture
def client() -> Client:
    return Client()


def beat(client: Client, version: int = 1, **fields: Any) -> Any:
    told = {
        "member_id": "m",
        "member_epoch": 0,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
        **fields,
    }
    return client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **told)


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_a_member_joins(client: Client, version: int) -> None:
    answer = beat(client, version)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, "m", 2)
    assert answer.heartbeat_interval == timedelta(seconds=5)
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (TOPIC_IDS["t"], (0, 1))
    idle = beat(
        client,
        version,
        member_epoch=2,
        subscribed_topic_names=None,
        topic_partitions=None,
        rebalance_timeout=timedelta(milliseconds=-1),
    )
    assert (idle.error_code, idle.assignment) == (NONE, None)


def test_the_first_version_hands_out_ids(client: Client) -> None:
    assert len(beat(client, 0, member_id="").member_id) == 22


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"member_id": ""}, "invalid_request", "MemberId can't be empty."),
        ({"group_id": ""}, "invalid_request", "GroupId can't be empty."),
        ({"instance_id": " "}, "invalid_request", "InstanceId can't be empty."),
        ({"rack_id": ""}, "invalid_request", "RackId can't be empty."),
        (
            {"rebalance_timeout": timedelta(milliseconds=-1)},
            "invalid_request",
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"topic_partitions": None},
            "invalid_request",
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            "invalid_request",
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
        ({"member_epoch": -2}, "invalid_request", "InstanceId can't be null."),
        ({"member_epoch": -3}, "invalid_request", "MemberEpoch is invalid."),
        (
            {"server_assignor": "none"},
            "unsupported_assignor",
            "ServerAssignor none is not supported. Supported assignors: uniform, "
            "range.",
        ),
        (
            {"member_epoch": 3},
            "group_id_not_found",
            "Consumer group g not found.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_kafkas_words(
    client: Client, fields: dict[str, Any], error: str, message: str
) -> None:
    answer = beat(client, **fields)
    assert (answer.error_code, answer.error_message) == (ErrorCode[error], message)


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_DESCRIBE))
def test_a_group_is_described(client: Client, version: int) -> None:
    beat(client)
    client.join(group_id="classic")
    answer = client.send(
        ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=["g", "classic", "none"]
    )
    group, classic, none = answer.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == (
        "Stable",
        2,
        2,
    )
    assert group.assignor_name == "uniform"
    (member,) = group.members
    assert (member.member_id, member.member_epoch) == ("m", 2)
    assert (member.client_id, member.client_host) == ("app", "/10.0.0.1")
    assert member.subscribed_topic_names == ("t",)
    assert member.assignment == member.target_assignment
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("t", (0, 1))
    if version >= 1:
        assert member.member_type == 1
    assert classic.error_code is none.error_code is ErrorCode.group_id_not_found
    assert classic.error_message == "Group classic is not a consumer group."
    assert none.error_message == "Group none not found."


def test_groups_are_listed_by_type(client: Client) -> None:
    beat(client)
    client.join(group_id="classic")
    for types, names in (((), {"g", "classic"}), (("Consumer",), {"g"})):
        answer = client.send(ApiKey.LIST_GROUPS, 5, types_filter=types)
        assert {group.group_id for group in answer.groups} == names
    (group,) = answer.groups
    assert (group.group_type, group.group_state) == ("consumer", "Stable")


def test_a_consumer_group_is_no_classic_one(client: Client) -> None:
    beat(client)
    (old,) = client.send(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"]).groups
    assert (old.error_code, old.group_state) == (NONE, "Dead")
    (new,) = client.send(ApiKey.DESCRIBE_GROUPS, 6, groups=["g"]).groups
    assert new.error_code is ErrorCode.group_id_not_found
    assert new.error_message == "Group g is not a classic group."


def test_consumer_groups_need_their_feature(client: Client) -> None:
    client.broker.coordinator.admin.finalized_features.group_version = 0
    assert beat(client).error_code is ErrorCode.unsupported_version
    (group,) = client.send(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups
    assert group.error_code is ErrorCode.unsupported_version
