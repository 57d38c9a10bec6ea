"""ApiVersions, Metadata and topics: Apache Kafka's answers and ours."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from tests.broker.apis.requests import SECONDS_30, new_topic
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import create, settle, topic, topic_id, versions

pytestmark = pytest.mark.kafka


@same_answers
def test_api_versions(peer: Peer) -> None:
    for version in versions(ApiKey.API_VERSIONS):
        peer.send(
            ApiKey.API_VERSIONS,
            version,
            client_software_name="test",
            client_software_version="1",
        )
    for name in ("", "a b", "-a", "a-b.c"):
        peer.send(
            ApiKey.API_VERSIONS,
            4,
            client_software_name=name,
            client_software_version="1",
        )


@same_answers
def test_create_topics(peer: Peer) -> None:
    for version in versions(ApiKey.CREATE_TOPICS):
        name = f"created-{version}"
        create(peer, new_topic(name, 3), version=version)
        create(peer, new_topic(name, 3), version=version)
        create(
            peer,
            new_topic("", 1),
            new_topic(".", 1),
            new_topic("a/b", 1),
            new_topic("x" * 250, 1),
            new_topic("none", 0),
            new_topic("minus", -2),
            new_topic("replicas", 1, replication_factor=2),
            new_topic("no-replicas", 1, replication_factor=0),
            new_topic("config", 1, configs=[("no.such", "1")]),
            new_topic("config-value", 1, configs=[("retention.ms", "soon")]),
            new_topic("config-null", 1, configs=[("retention.ms", None)]),
            new_topic("twice", 1),
            new_topic("twice", 1),
            version=version,
        )
        if version < 7:
            # From v7 on Kafka returns an id for a topic that it does not create.
            dry = new_topic(f"dry-{version}", 2)
            create(peer, dry, version=version, validate_only=True)
        create(
            peer,
            new_topic(
                f"assigned-{version}",
                -1,
                replication_factor=-1,
                assignments=[{"partition_index": 0, "broker_ids": [1]}],
                configs=[("retention.ms", "1000")],
            ),
            version=version,
        )
        create(
            peer,
            new_topic(
                f"bad-assigned-{version}",
                -1,
                replication_factor=-1,
                assignments=[{"partition_index": 1, "broker_ids": [1]}],
            ),
            new_topic(
                f"other-broker-{version}",
                -1,
                replication_factor=-1,
                assignments=[{"partition_index": 0, "broker_ids": [9]}],
            ),
            version=version,
        )
        if version >= 4:
            create(
                peer,
                new_topic(f"default-{version}", -1, replication_factor=-1),
                version=version,
            )


@same_answers
def test_metadata(peer: Peer) -> None:
    topic(peer, "known", 2)
    for version in versions(ApiKey.METADATA):
        peer.send(
            ApiKey.METADATA,
            version,
            topics=[{"name": "known"}, {"name": "unknown"}, {"name": "a/b"}],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        if version:
            peer.send(ApiKey.METADATA, version, topics=[])
    known = topic_id(peer, "known")
    for wanted in (known, UUID(int=77)):
        peer.send(ApiKey.METADATA, 12, topics=[{"topic_id": wanted, "name": None}])
        peer.send(ApiKey.METADATA, 11, topics=[{"topic_id": wanted, "name": "known"}])


@same_answers
def test_describe_topic_partitions(peer: Peer) -> None:
    for name, partitions in (("page-a", 3), ("page-b", 2)):
        topic(peer, name, partitions)
    pages = [{"name": "page-a"}, {"name": "page-b"}, {"name": "page-c"}]
    for limit in (1, 2, 3, 4, 5, 2000):
        cursor = None
        while True:
            answer = peer.send(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                0,
                topics=pages,
                response_partition_limit=limit,
                cursor=cursor,
            )
            if answer.next_cursor is None:
                break
            cursor = {
                "topic_name": answer.next_cursor.topic_name,
                "partition_index": answer.next_cursor.partition_index,
            }


@same_answers
def test_describe_cluster(peer: Peer) -> None:
    for version in versions(ApiKey.DESCRIBE_CLUSTER):
        for asked in (False, True):
            peer.send(
                ApiKey.DESCRIBE_CLUSTER,
                version,
                include_cluster_authorized_operations=asked,
                endpoint_type=1,
            )
    peer.send(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=2)
    peer.send(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=3)


@same_answers
def test_create_partitions(peer: Peer) -> None:
    topic(peer, "growing", 2)
    for version in versions(ApiKey.CREATE_PARTITIONS):
        for count, assignments in (
            (1, None),
            (2 + version, None),
            (0, None),
            (-1, None),
            (3 + version, None),
            (9, [{"broker_ids": [1]}]),
            (4 + version, [{"broker_ids": [9]}]),
            (4 + version, [{"broker_ids": []}]),
        ):
            peer.send(
                ApiKey.CREATE_PARTITIONS,
                version,
                topics=[
                    {"name": "growing", "count": count, "assignments": assignments},
                    {"name": "nowhere", "count": 3, "assignments": None},
                ],
                timeout=SECONDS_30,
            )
    twice = {"name": "growing", "count": 20, "assignments": None}
    peer.send(ApiKey.CREATE_PARTITIONS, 3, topics=[twice, twice], timeout=SECONDS_30)
    dry = {"name": "growing", "count": 30, "assignments": None}
    peer.send(
        ApiKey.CREATE_PARTITIONS,
        3,
        topics=[dry],
        timeout=SECONDS_30,
        validate_only=True,
    )
    settle(peer)
    peer.send(ApiKey.METADATA, 12, topics=[{"name": "growing"}])


@same_answers
def test_describe_quorum(peer: Peer) -> None:
    for version in versions(ApiKey.DESCRIBE_QUORUM):
        for wanted in (
            [("__cluster_metadata", [0])],
            [("__cluster_metadata", [1])],
            [("__cluster_metadata", [0, 1])],
            [("__cluster_metadata", [0, 0])],
            [("__cluster_metadata", []), ("described", [0, 5])],
            [("__cluster_metadata", [0]), ("__cluster_metadata", [0])],
            [("", [-1])],
            [],
        ):
            topics = [
                {
                    "topic_name": name,
                    "partitions": [{"partition_index": index} for index in indexes],
                }
                for name, indexes in wanted
            ]
            peer.send(ApiKey.DESCRIBE_QUORUM, version, topics=topics)


@same_answers
def test_delete_topics(peer: Peer) -> None:
    for version in versions(ApiKey.DELETE_TOPICS):
        topic(peer, f"gone-{version}")
        names = [f"gone-{version}", "never", "a/b"]
        for _ in range(2):
            if version < 6:
                peer.send(
                    ApiKey.DELETE_TOPICS,
                    version,
                    topic_names=names,
                    timeout=SECONDS_30,
                )
            else:
                peer.send(
                    ApiKey.DELETE_TOPICS,
                    version,
                    topics=[{"name": name} for name in names],
                    timeout=SECONDS_30,
                )
