"""Invalid names, ids and placements of topics: Apache Kafka's answers and ours."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from tests.broker.apis.requests import SECONDS_30, new_topic
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import create, settle, topic, topic_id, versions

pytestmark = pytest.mark.kafka

LONG = "x" * 249


@same_answers
def test_names_that_collide_or_are_kafkas_own(peer: Peer) -> None:
    topic(peer, "one.two")
    for version in (2, 4, 7):
        create(
            peer,
            new_topic("one_two", 1),
            new_topic("one.two", 1),
            new_topic("..", 1),
            new_topic("a b", 1),
            new_topic("ä", 1),
            new_topic(LONG + "x", 1),
            version=version,
        )
    create(peer, new_topic("__consumer_offsets", 1))
    peer.send(
        ApiKey.METADATA,
        12,
        topics=[{"name": name} for name in ("one_two", "..", "a b", LONG + "x", "")],
        allow_auto_topic_creation=True,
    )


@same_answers
def test_placements_that_cannot_be(peer: Peer) -> None:
    for number, fields in enumerate(
        (
            {"num_partitions": 3, "assignments": [(0, [1])]},
            {"replication_factor": 1, "assignments": [(0, [1])]},
            {"assignments": [(0, [1, 1])]},
            {"assignments": [(0, [])]},
            {"assignments": [(0, [1]), (0, [1])]},
            {"assignments": [(0, [1]), (2, [1])]},
            {"assignments": [(-1, [1])]},
            {"assignments": [(0, [1, 9])]},
            {"assignments": [(0, [-1])]},
        )
    ):
        placed = [
            {"partition_index": index, "broker_ids": brokers}
            for index, brokers in fields.pop("assignments")
        ]
        told = {"partitions": -1, "replication_factor": -1, "assignments": placed}
        if "num_partitions" in fields:
            told["partitions"] = fields.pop("num_partitions")
        create(peer, new_topic(f"placed-{number}", **{**told, **fields}))
    settle(peer)
    peer.send(ApiKey.METADATA, 12, topics=[{"name": f"placed-{n}"} for n in range(9)])


@same_answers
def test_creations_that_are_only_tried(peer: Peer) -> None:
    topic(peer, "tried")
    for version in versions(ApiKey.CREATE_TOPICS):
        if version == 7:
            # Version 7 returns an id, which Kafka generates for the uncreated topic.
            continue
        create(
            peer,
            new_topic("tried", 1),
            new_topic("untried", 1),
            new_topic("untried-bad", 1, configs=[("cleanup.policy", "burn")]),
            version=version,
            validate_only=True,
        )
    peer.send(ApiKey.METADATA, 12, topics=[{"name": "untried"}])


@same_answers
def test_configs_that_a_topic_cannot_have(peer: Peer) -> None:
    for number, configs in enumerate(
        (
            [("retention.ms", "-2")],
            [("segment.bytes", "1")],
            [("compression.type", "brotli")],
            [("min.insync.replicas", "0")],
            [("cleanup.policy", "")],
            [("cleanup.policy", "compact,delete")],
            [("max.message.bytes", "-1")],
            [("min.cleanable.dirty.ratio", "1.1")],
            [("message.timestamp.type", "Whenever")],
            [("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")],
            [("unclean.leader.election.enable", "perhaps")],
            [("num.partitions", "3")],
            [("", "")],
            [("retention.ms", "1"), ("retention.ms", "2")],
            [("preallocate", " TRUE ")],
        )
    ):
        create(peer, new_topic(f"with-configs-{number}", 1, configs=configs))


@same_answers
def test_topics_are_deleted_by_id_and_by_name(peer: Peer) -> None:
    for name in ("by-id", "by-name", "by-both"):
        topic(peer, name)
    by_id, by_both = topic_id(peer, "by-id"), topic_id(peer, "by-both")
    for topics in (
        [{"name": None, "topic_id": UUID(int=79)}],
        [{"name": "by-both", "topic_id": by_both}],
        [{"name": "by-name"}, {"name": "by-name"}],
        [{"name": None, "topic_id": by_id}, {"name": "by-id"}],
        [{"name": None, "topic_id": by_both}, {"name": None, "topic_id": by_both}],
        [{"name": None, "topic_id": by_id}],
        [{"name": None, "topic_id": by_id}],
        [],
    ):
        peer.send(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=SECONDS_30)


@same_answers
def test_all_topics_and_none(peer: Peer) -> None:
    topic(peer, "listed-a", 2)
    for version in versions(ApiKey.METADATA):
        everything = [] if version == 0 else None
        answer = peer.ask(ApiKey.METADATA, version, topics=everything)
        names = sorted(each.name for each in answer.topics)
        peer.note(f"METADATA v{version} names", "listed-a" in names)
        internal = {each.name for each in answer.topics if version and each.is_internal}
        peer.note(f"METADATA v{version} internal", sorted(internal))
        peer.send(
            ApiKey.METADATA,
            version,
            topics=[{"name": "listed-a"}, {"name": "listed-a"}],
        )


@same_answers
def test_pages_of_partitions_with_odd_cursors(peer: Peer) -> None:
    topic(peer, "cursor-a", 2)
    topic(peer, "cursor-b", 2)
    wanted = [{"name": "cursor-a"}, {"name": "cursor-b"}, {"name": "a/b"}]
    for cursor in (
        {"topic_name": "cursor-a", "partition_index": 1},
        {"topic_name": "cursor-a", "partition_index": 9},
        {"topic_name": "cursor-b", "partition_index": 0},
        {"topic_name": "cursor-aa", "partition_index": 0},
        {"topic_name": "zzz", "partition_index": 0},
        {"topic_name": "cursor-a", "partition_index": -1},
    ):
        peer.send(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=wanted,
            response_partition_limit=2000,
            cursor=cursor,
        )
    for limit in (0, -1):
        peer.send(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=wanted,
            response_partition_limit=limit,
            cursor=None,
        )


@same_answers
def test_reassignments_that_cannot_be(peer: Peer) -> None:
    name = topic(peer, "moved", 2)
    for replicas in ([1], [9], [], [1, 1], None, [-1], [1, 9]):
        peer.send(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            0,
            timeout=timedelta(seconds=30),
            topics=[
                {
                    "name": each,
                    "partitions": [{"partition_index": index, "replicas": replicas}],
                }
                for each, index in ((name, 0), ("nowhere", 0))
            ],
        )
    peer.send(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=SECONDS_30, topics=None)
    peer.send(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        timeout=SECONDS_30,
        topics=[{"name": "nowhere", "partition_indexes": [0]}],
    )
    for version in versions(ApiKey.ELECT_LEADERS):
        peer.send(
            ApiKey.ELECT_LEADERS,
            version,
            topic_partitions=[{"topic": name, "partitions": [0, 0]}],
            timeout=SECONDS_30,
        )
        if version:
            peer.send(
                ApiKey.ELECT_LEADERS,
                version,
                election_type=9,
                topic_partitions=[{"topic": name, "partitions": [0]}],
                timeout=SECONDS_30,
            )
