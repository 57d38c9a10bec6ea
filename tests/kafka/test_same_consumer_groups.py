"""Consumer groups of KIP-848 step by step: Kafka 4.4's answers and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30
from tests.kafka.conftest import SETTINGS, Both, beside_kafka, same_answers
from tests.kafka.java_tools import NEWEST, KafkaPrograms
from tests.kafka.peer import Peer
from tests.kafka.requests import topic, topic_id
from tests.kafka.test_same_groups import join, partitions, ready

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def both(
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    """Yield Apache Kafka 4.4 and Doorkeeper, with no pause between assignments."""
    directory = tmp_path_factory.mktemp("consumers")
    settings = {**SETTINGS, "group_consumer_assignment_interval_ms": "0"}
    with beside_kafka(programs_of(NEWEST), directory, **settings) as both:
        yield both


def beat(peer: Peer, group: str, member: str, epoch: int = 0, **fields: Any) -> Any:
    told: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "topic_partitions": None,
    }
    if epoch == 0:
        told |= {"rebalance_timeout": SECONDS_30, "topic_partitions": []}
    return peer.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **{**told, **fields})


def owned(of: UUID, *indexes: int) -> list[dict[str, Any]]:
    return [{"topic_id": of, "partitions": list(indexes)}]


def describe(peer: Peer, *groups: str) -> None:
    for version in (0, 1):
        peer.send(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=list(groups))


@same_answers
def test_one_member(peer: Peer) -> None:
    name = topic(peer, "alone", 3)
    group = ready(peer, "alone")
    beat(peer, group, "a", subscribed_topic_names=[name])
    beat(peer, group, "a", 2)
    describe(peer, group)
    beat(peer, group, "a", 3)
    beat(peer, group, "a", 1)
    beat(peer, group, "b", 2)
    beat(peer, group, "a", subscribed_topic_names=[name])
    beat(peer, group, "a", 2, subscribed_topic_names=[])
    beat(peer, group, "a", 2, topic_partitions=[])
    describe(peer, group)
    beat(peer, group, "a", -1)
    beat(peer, group, "a", -1)
    describe(peer, group)


@same_answers
def test_partitions_that_move(peer: Peer) -> None:
    name = topic(peer, "moving", 4)
    of = topic_id(peer, name)
    group = ready(peer, "moving")
    subscribed = {"subscribed_topic_names": [name], "server_assignor": "range"}
    beat(peer, group, "a", **subscribed)
    beat(peer, group, "b", **subscribed)
    describe(peer, group)
    beat(peer, group, "a", 2)
    beat(peer, group, "b", 3)
    describe(peer, group)
    beat(peer, group, "a", 2, topic_partitions=owned(of, 0, 1, 2, 3))
    beat(peer, group, "a", 2, topic_partitions=owned(of, 0, 1))
    beat(peer, group, "b", 3)
    describe(peer, group)
    beat(peer, group, "a", 3, server_assignor="uniform")
    beat(peer, group, "b", -1)
    beat(peer, group, "a", 3)
    describe(peer, group)


@same_answers
def test_static_members(peer: Peer) -> None:
    name = topic(peer, "static-848", 2)
    group = ready(peer, "static-848")
    fields = {"subscribed_topic_names": [name], "instance_id": "i"}
    beat(peer, group, "a", **fields)
    beat(peer, group, "b", **fields)
    beat(peer, group, "b", 2, instance_id="i")
    beat(peer, group, "a", -2, instance_id="i")
    describe(peer, group)
    beat(peer, group, "b", **fields)
    beat(peer, group, "a", 2, instance_id="i")
    beat(peer, group, "b", 2, instance_id="j")
    describe(peer, group)
    beat(peer, group, "b", -1, instance_id="i")
    describe(peer, group)


@same_answers
def test_requests_that_are_wrong(peer: Peer) -> None:
    group = ready(peer, "wrong-848")
    names = {"subscribed_topic_names": ["t"]}
    beat(peer, "", "a", **names)
    beat(peer, group, "", **names)
    beat(peer, group, "a", instance_id="", **names)
    beat(peer, group, "a", rack_id="", **names)
    beat(peer, group, "a")
    beat(peer, group, "a", topic_partitions=None, **names)
    beat(peer, group, "a", server_assignor="nope", **names)
    beat(peer, group, "a", -2)
    beat(peer, group, "a", -3)
    beat(peer, group, "a", 5)
    beat(peer, group, "a", -1)
    beat(peer, group, "a", subscribed_topic_regex="(")
    describe(peer, group, "nobody")


@same_answers
def test_offsets_of_members(peer: Peer) -> None:
    name = topic(peer, "offsets-848", 2)
    group = ready(peer, "offsets-848")
    beat(peer, group, "a", subscribed_topic_names=[name])
    told = {
        "group_id": group,
        "member_id": "a",
        "topics": [{"name": name, "partitions": partitions(0, committed_offset=3)}],
    }
    for version, epoch in ((9, 2), (9, 1), (9, 3), (8, 2), (9, -1)):
        told["generation_id_or_member_epoch"] = epoch
        peer.send(ApiKey.OFFSET_COMMIT, version, **told)
    told |= {"member_id": "b", "generation_id_or_member_epoch": 2}
    peer.send(ApiKey.OFFSET_COMMIT, 9, **told)
    for member, epoch in (("a", 2), ("a", 1), ("b", 2), (None, -1)):
        of = {
            "group_id": group,
            "member_id": member,
            "member_epoch": epoch,
            "topics": None,
        }
        peer.send(ApiKey.OFFSET_FETCH, 9, groups=[of])
    named = [{"name": name, "partitions": [{"partition_index": 0}]}]
    peer.send(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=named)
    peer.send(ApiKey.DELETE_GROUPS, 2, groups_names=[group])
    peer.send(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
    peer.send(ApiKey.DESCRIBE_GROUPS, 6, groups=[group])
    beat(peer, group, "a", -1)
    peer.send(ApiKey.DELETE_GROUPS, 2, groups_names=[group])
    describe(peer, group)


@same_answers
def test_classic_members(peer: Peer) -> None:
    name = topic(peer, "t", 2)
    group = ready(peer, "mixed-848")
    beat(peer, group, "a", subscribed_topic_names=[name])
    joined = join(peer, group)
    member = joined.member_id
    told = {"group_id": group, "member_id": member, "generation_id": 3}
    peer.send(ApiKey.SYNC_GROUP, 5, **told)
    peer.send(ApiKey.HEARTBEAT, 4, **told)
    describe(peer, group)
    peer.send(ApiKey.HEARTBEAT, 4, **{**told, "generation_id": 9})
    peer.send(ApiKey.HEARTBEAT, 4, **{**told, "member_id": "a"})
    beat(peer, group, "a", -1)
    # The group now has a member of the classic protocol only.
    describe(peer, group)
    peer.send(ApiKey.LIST_GROUPS, 5, states_filter=["PreparingRebalance"])
    leaving = [{"member_id": member}]
    peer.send(ApiKey.LEAVE_GROUP, 5, group_id=group, members=leaving)


@same_answers
def test_a_classic_group_that_is_upgraded(peer: Peer) -> None:
    topic(peer, "up", 2)
    group = ready(peer, "upgraded-848")
    joined = join(peer, group)
    member = joined.member_id
    told = {"group_id": group, "member_id": member, "generation_id": 1}
    peer.send(ApiKey.SYNC_GROUP, 5, **told, assignments=[])
    beat(peer, group, "a", subscribed_topic_names=["up"])
    describe(peer, group)
    answer = peer.send(ApiKey.HEARTBEAT, 4, **told)
    assert answer.error_code is ErrorCode.rebalance_in_progress
    join(peer, group, member_id=member)
    describe(peer, group)
