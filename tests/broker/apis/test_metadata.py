"""Metadata and related APIs: topics, leaders, brokers, coordinators, versions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.handling.api_registry import APIS
from broker.log.steps import run
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import leader_and_isr, update_metadata

NOT_ASKED = -(2**31)


def metadata(world: World, version: int = 12, **fields: Any) -> Any:
    fields = {"topics": None, "allow_auto_topic_creation": True, **fields}
    return world.send(ApiKey.METADATA, version, **fields)


def names(answer: Any) -> list[tuple[str | None, ErrorCode]]:
    return [(topic.name, topic.error_code) for topic in answer.topics]


def test_all_topics_or_none_or_those_that_are_named() -> None:
    world = World()
    world.create("a", 2)
    world.create("b")
    everyone = [("a", NONE), ("b", NONE)]
    assert names(metadata(world, 0, topics=())) == everyone
    assert names(metadata(world, 1)) == everyone
    assert names(metadata(world, 12)) == everyone
    for version in (1, 12):
        nobody = metadata(world, version, topics=())
        assert names(nobody) == []
        assert [broker.node_id for broker in nobody.brokers] == [0]
    assert names(metadata(world, topics=[{"name": "b"}])) == [("b", NONE)]


def test_a_topic_is_reported_with_its_partitions_and_its_id() -> None:
    world = World()
    topic_id = world.create("a", 3)
    (topic,) = metadata(world).topics
    assert (topic.topic_id, topic.is_internal) == (topic_id, False)
    assert [
        (p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        for p in topic.partitions
    ] == [(index, 0, 0, (0,), (0,)) for index in range(3)]


def test_an_unknown_topic_is_created_if_both_sides_want_it() -> None:
    world = World({"num.partitions": "3"})
    (first,) = metadata(world, topics=[{"name": "new"}]).topics
    assert first.error_code is ErrorCode.unknown_topic_or_partition
    assert list(first.partitions) == []
    (topic,) = metadata(world, topics=[{"name": "new"}]).topics
    assert (topic.error_code, len(topic.partitions)) == (NONE, 3)
    assert world.produce("new", b"a", partition=2).error_code is NONE


@pytest.mark.parametrize(
    ("enabled", "allowed", "version"),
    [("false", True, 12), ("true", False, 12), ("false", True, 0)],
)
def test_an_unknown_topic_is_not_created_if_one_side_does_not(
    enabled: str, allowed: bool, version: int
) -> None:
    world = World({"auto.create.topics.enable": enabled})
    wanted = {"topics": [{"name": "new"}], "allow_auto_topic_creation": allowed}
    found = names(metadata(world, version, **wanted))
    assert found == [("new", ErrorCode.unknown_topic_or_partition)]
    assert world.broker.coordinator.admin.topics == {}


def test_versions_before_4_always_allow_it() -> None:
    world = World()
    metadata(world, 3, topics=[{"name": "new"}])
    assert names(metadata(world, 3, topics=[{"name": "new"}])) == [("new", NONE)]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250])
def test_an_illegal_name_is_not_created(name: str) -> None:
    world = World()
    found = names(metadata(world, topics=[{"name": name}]))
    assert found == [(name, ErrorCode.invalid_topic_exception)]


def test_a_default_that_cannot_be_met_is_reported() -> None:
    world = World({"default.replication.factor": "3"})
    found = names(metadata(world, topics=[{"name": "new"}]))
    assert found == [("new", ErrorCode.invalid_replication_factor)]


def test_topics_go_by_id_from_version_12_on() -> None:
    world = World()
    topic_id = world.create("a")
    by_id = [{"topic_id": topic_id, "name": None}]
    assert names(metadata(world, 12, topics=by_id)) == [("a", NONE)]
    stranger = [{"topic_id": UUID(int=5), "name": None}]
    (topic,) = metadata(world, 12, topics=stranger).topics
    assert (topic.error_code, topic.topic_id) == (
        ErrorCode.unknown_topic_id,
        UUID(int=5),
    )
    too_early = metadata(world, 11, topics=[{"topic_id": topic_id, "name": "a"}])
    assert names(too_early) == [("a", ErrorCode.invalid_request)]
    nameless = metadata(world, 12, topics=[{"topic_id": None, "name": None}])
    assert names(nameless) == [(None, ErrorCode.invalid_request)]


def test_operations_are_reported_if_they_are_asked_for() -> None:
    world = World()
    world.create("a")
    plain = metadata(world, 8)
    assert plain.cluster_authorized_operations == NOT_ASKED
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    asked = metadata(
        world,
        8,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    # Kafka 3.9's answer without an authorizer (AclEntry.supportedOperations).
    assert asked.cluster_authorized_operations == 8096
    assert asked.topics[0].topic_authorized_operations == 3576


# ---- leaders that cannot be reached ----


@pytest.mark.parametrize(
    ("alive", "version", "error"),
    [
        (False, 5, ErrorCode.leader_not_available),
        (False, 6, ErrorCode.leader_not_available),
        (True, 5, ErrorCode.leader_not_available),
        (True, 6, ErrorCode.listener_not_found),
    ],
)
def test_a_leader_that_clients_cannot_reach_is_not_named(
    alive: bool, version: int, error: ErrorCode
) -> None:
    world = World()
    world.create("a")
    brokers = {0: ("127.0.0.1", 9092), **({2: ("other", 1)} if alive else {})}
    told = update_metadata(("a", 0), leader=2, brokers=brokers)
    world.command(ApiKey.UPDATE_METADATA, told)
    world.broker.metadata_cache.brokers.pop(2, None)
    if alive:
        elsewhere = type(world.broker.metadata_cache.brokers[0])
        world.broker.metadata_cache.brokers[2] = elsewhere(
            id=2, endpoints={"INTERNAL": ("other", 1)}
        )
    (partition,) = metadata(world, version).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (error, -1)
    assert partition.offline_replicas == (2,)


# ---- DescribeCluster, DescribeTopicPartitions ----


def test_the_cluster_is_described_as_metadata_does() -> None:
    world = World({"broker.rack": "r1"})
    answer = world.send(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        endpoint_type=1,
        include_cluster_authorized_operations=True,
    )
    assert answer.cluster_id == metadata(world).cluster_id
    assert (answer.controller_id, answer.cluster_authorized_operations) == (0, 8096)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (
        0,
        "127.0.0.1",
        9092,
        "r1",
    )


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [
        (2, ErrorCode.mismatched_endpoint_type),
        (3, ErrorCode.unsupported_endpoint_type),
    ],
)
def test_controllers_are_not_asked_for_here(
    endpoint_type: int, error: ErrorCode
) -> None:
    answer = World().send(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=endpoint_type)
    assert (answer.error_code, answer.brokers) == (error, ())


def pages(world: World, limit: int, *topics: str) -> list[list[tuple[str, list[int]]]]:
    found, cursor = [], None
    while True:
        answer = world.send(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[{"name": name} for name in topics],
            response_partition_limit=limit,
            cursor=cursor,
        )
        found.append(
            [
                (topic.name, [p.partition_index for p in topic.partitions])
                for topic in answer.topics
            ]
        )
        if answer.next_cursor is None:
            return found
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }


def test_partitions_are_described_page_by_page() -> None:
    world = World()
    world.create("b", 3)
    world.create("a", 2)
    assert pages(world, 2000) == [[("a", [0, 1]), ("b", [0, 1, 2])]]
    assert pages(world, 3) == [[("a", [0, 1]), ("b", [0])], [("b", [1, 2])]]
    assert pages(world, 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2])]]
    assert pages(world, 1, "b") == [[("b", [0])], [("b", [1])], [("b", [2])]]


def test_an_unknown_topic_is_described_by_its_error() -> None:
    answer = World().send(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": "nope"}, {"name": "a b"}],
        response_partition_limit=10,
    )
    assert names(answer) == [
        ("a b", ErrorCode.invalid_topic_exception),
        ("nope", ErrorCode.unknown_topic_or_partition),
    ]


# ---- FindCoordinator ----


def test_a_coordinator_is_found_and_the_offsets_topic_made_for_it() -> None:
    world = World()
    first = world.send(ApiKey.FIND_COORDINATOR, 3, key="g")
    assert (first.error_code, first.node_id) == (
        ErrorCode.coordinator_not_available,
        -1,
    )
    single = world.send(ApiKey.FIND_COORDINATOR, 3, key="g")
    assert (single.error_code, single.node_id, single.host, single.port) == (
        NONE,
        0,
        "127.0.0.1",
        9092,
    )
    (topic,) = metadata(world).topics
    assert (topic.name, topic.is_internal) == ("__consumer_offsets", True)
    assert len(topic.partitions) == 2
    many = world.send(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g", "h"])
    assert [(c.key, c.error_code, c.node_id) for c in many.coordinators] == [
        ("g", NONE, 0),
        ("h", NONE, 0),
    ]
    config = world.broker.logs.logs["__consumer_offsets", 0].config
    assert (config.compacts, config.deletes) == (True, False)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (2, ErrorCode.invalid_request),
        (7, ErrorCode.invalid_request),
    ],
)
def test_other_things_have_no_coordinator_here(kind: int, error: ErrorCode) -> None:
    for version in range(1, 5):
        answer = World().send(
            ApiKey.FIND_COORDINATOR,
            version,
            key="tx",
            coordinator_keys=["tx"],
            key_type=kind,
        )
        rows = answer.coordinators if version >= 4 else [answer]
        assert [row.error_code for row in rows] == [error]


def test_a_coordinator_that_cannot_be_reached_is_not_available() -> None:
    world = World()
    world.send(ApiKey.FIND_COORDINATOR, 3, key="g")
    partition = world.broker.groups.partition_for("g")
    key = ("__consumer_offsets", partition)
    world.command(
        ApiKey.LEADER_AND_ISR, leader_and_isr(key, leader=2, leader_epoch=5, isr=(0, 2))
    )
    world.command(ApiKey.UPDATE_METADATA, update_metadata(key, leader=2))
    answer = world.send(ApiKey.FIND_COORDINATOR, 3, key="g")
    assert answer.error_code is ErrorCode.coordinator_not_available


# ---- ApiVersions ----


@pytest.mark.parametrize("with_quotas", [False, True])
def test_a_version_above_ours_is_answered_in_version_0(with_quotas: bool) -> None:
    """Quotas do not change the answer: clients of higher versions have to connect."""
    world = World()
    if with_quotas:
        quota = {"producer_byte_rate": "1024"}
        world.broker.client_quotas.put("users/quota%2Fuser", quota)
        assert world.broker.client_quotas.is_active
    header = bytes([0, 18, 0, 99, 0, 0, 0, 7, 0, 0, 0])
    call = world.start_frame(header)
    # Size, correlation id, error 35, one entry: key 18, versions 0 to 5.
    assert call.frame == bytes.fromhex("00000010 00000007 0023 00000001 0012 0000 0005")
    assert call.request.error_code == ErrorCode.unsupported_version


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "ä"])
def test_an_odd_software_name_is_refused(name: str) -> None:
    answer = World().send(
        ApiKey.API_VERSIONS, 3, client_software_name=name, client_software_version="1"
    )
    assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())


OURS, OTHERS, NO_NODE = "ours", "others", -1


@pytest.mark.parametrize(
    ("cluster", "node", "expected"),
    [
        (None, NO_NODE, ErrorCode.none),
        (OURS, 0, ErrorCode.none),
        (None, 0, ErrorCode.invalid_request),
        (OURS, NO_NODE, ErrorCode.invalid_request),
        (OTHERS, NO_NODE, ErrorCode.invalid_request),
        (OURS, 7, ErrorCode.rebootstrap_required),
        (OTHERS, 0, ErrorCode.rebootstrap_required),
        ("", 0, ErrorCode.rebootstrap_required),
    ],
)
def test_a_client_that_means_another_broker_begins_anew(
    cluster: str | None, node: int, expected: ErrorCode
) -> None:
    """Answers of Kafka 4.4.0 (KIP-1242)."""
    world = World()
    assert world.broker.cluster_id not in (None, OURS, "")
    answer = world.send(
        ApiKey.API_VERSIONS,
        5,
        client_software_name="a",
        client_software_version="1",
        cluster_id=world.broker.cluster_id if cluster == OURS else cluster,
        node_id=node,
    )
    assert answer.error_code is expected
    assert bool(answer.api_keys) == (expected is NONE)


def test_versions_that_librdkafka_requires_are_advertised() -> None:
    answer = World().send(ApiKey.API_VERSIONS, 0)
    ranges = {
        key.api_key: (key.min_version, key.max_version) for key in answer.api_keys
    }
    # Compression requires Produce 0, and consumer groups the oldest group APIs.
    for key, version in ((0, 0), (0, 7), (10, 0), (11, 0), (8, 1), (9, 1), (14, 0)):
        low, high = ranges[key]
        assert low <= version <= high, key
    # Transactions require these APIs.
    assert {22, 24, 25, 26} <= ranges.keys()


def test_the_peer_of_these_tests_is_on_a_listener_of_the_broker() -> None:
    world = World()
    assert world.peer.listener in world.broker.metadata_cache.brokers[0].endpoints


@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS])
def test_an_answer_in_steps_is_of_one_time(api: ApiKey, in_steps: bool) -> None:
    """While a topic is described, another one gets a new leader, a third is deleted."""
    world = World()
    for name in "abc":
        world.create(name, 2)
    cache = world.broker.metadata_cache
    before = {name: [0, 0] for name in "abc"}
    request: Any = SimpleNamespace(
        peer=SimpleNamespace(listener="PLAINTEXT"), api_version=12
    )
    body: Any = (
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in "abc"])
        if api is ApiKey.METADATA
        else DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in "abc"]
        )
    )
    handling: Any = APIS[api].handle(request, body, world.broker)
    steps = 0
    try:
        while True:
            handling.send(None)
            steps += 1
            if steps == 1:
                for key, leader in ((("b", 0), 7), (("c", 0), -2), (("c", 1), -2)):
                    told = update_metadata(key, leader=leader)
                    if in_steps:
                        run(cache.updating(told))
                    else:
                        cache.update(told)
    except StopIteration as done:
        answer = done.value
    assert steps > 1
    epochs = {
        topic.name: [each.leader_epoch for each in topic.partitions]
        for topic in answer.topics
    }
    assert epochs == before
    assert cache.topic("c") is None
    now = cache.topic("b")
    assert now is not None
    assert now.partitions[0].leader == 7
    cache.check()


def test_a_change_after_a_view_leaves_the_view_as_it_was() -> None:
    """The second of two changes in one topic does not change the view either."""
    world = World()
    world.create("a", 2)
    cache = world.broker.metadata_cache
    view = cache.view()
    run(cache.updating(update_metadata(("b", 0), leader=0)))
    cache.update(update_metadata(("a", 0), leader=7))
    cache.update(update_metadata(("a", 1), leader=7))
    seen, now = view.topic("a"), cache.topic("a")
    assert seen is not None
    assert now is not None
    assert [each.leader for each in seen.partitions.values()] == [0, 0]
    assert [each.leader for each in now.partitions.values()] == [7, 7]
    assert view.topic("b") is None
