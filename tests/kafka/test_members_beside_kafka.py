"""Doorkeeper's broker in one cluster with Apache Kafka's, under either controller.

Kafka 3.9 is broker 0 and the first controller, Doorkeeper is broker 1; both use
ZooKeeper. Each reads the znodes that the other has written, and obeys its controller.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from broker.controller.assignment import ReplicaAssignment
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import (
    read_broker,
    read_cluster_id,
    read_config,
    write_broker,
    write_cluster_id,
    write_config,
    write_controller,
)
from broker.coordination.zookeeper.layout.topic_records import (
    read_leadership,
    read_topic,
    write_leadership,
    write_topic,
)
from broker.protocol.topic_partition import TopicPartition
from broker.shards.group_partition import partition_for
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from tests.kafka.invented import KEPT_UP, in_time, keeping_up
from tests.kafka.java_tools import need_kafka
from tests.kafka.mixed_cluster import (
    TIMEOUT_S,
    VERSION,
    Cluster,
    are_same,
    ask_zookeeper,
    committed,
    controller,
    count_of,
    create,
    end_of,
    has_grown,
    is_gone,
    kept_isr,
    leaders,
    make_controller,
    offset_of,
    produce,
    standing_still,
    transact,
    until,
    values_kept,
    wait_in_sync,
)

pytestmark = [pytest.mark.kafka, pytest.mark.live]

RECORDS = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_kafka(VERSION)
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)


@pytest.mark.parametrize("leader", [0, 1], ids=["kafka-leads", "ours-leads"])
def test_all_replicas_have_what_is_acknowledged_whoever_leads(
    cluster: Cluster, leader: int
) -> None:
    name = f"led-by-{leader}"
    create(cluster, name, [leader, 1 - leader])
    values = [f"{number:04}" for number in range(RECORDS)]
    produce(cluster.bootstrap, name, values)
    until(partial(are_same, cluster, name), "the same bytes")
    assert values_kept(cluster, name) == values


@pytest.mark.parametrize("leader", [0, 1], ids=["kafka-leads", "ours-leads"])
def test_transactions_cross_brokers_whoever_coordinates(
    cluster: Cluster, leader: int
) -> None:
    """Coordinators of both brokers end transactions on partitions led by both."""
    name = f"transactions-led-by-{leader}"
    admin = create(cluster, name, [leader, 1 - leader])
    expected, values = [], ("kept", "aborted", "kept too", "aborted too")
    names = [f"producer-{number}" for number in range(4)]
    groups = [f"group-{number}-{leader}" for number in range(4)]
    for each, group in zip(names, groups, strict=True):
        sent = [f"{each}: {value}" for value in values]
        transact(cluster.bootstrap, each, name, sent, group)
        expected += sent[::2]
    for bootstrap in (cluster.bootstrap, cluster.ours.bootstrap):
        assert committed(bootstrap, name, len(expected)) == expected
    for topic, ids in (("__transaction_state", names), ("__consumer_offsets", groups)):
        led = leaders(admin, topic)
        assert {led[partition_for(each, len(led))] for each in ids} == {0, 1}
    for group in groups:
        assert offset_of(cluster.bootstrap, group, name) == 2
    until(partial(are_same, cluster, name), "the same bytes")


def test_kafkas_controller_takes_a_lagging_follower_out_of_our_isr_and_in_again(
    cluster: Cluster,
) -> None:
    name = "lags"
    admin = create(cluster, name, [1, 0])
    before = count_of(cluster, "isrshrinks"), count_of(cluster, "isrexpands")
    with standing_still(cluster.kafka.pid):
        produce(cluster.ours.bootstrap, name, ["a", "b"], acks="1")
        # Over 1.5 times replica.lag.time.max.ms: the leader has proposed the new ISR.
        time.sleep(4.5)
    # On a slow machine the ISR may change more than once.
    for metric, count in zip(("isrshrinks", "isrexpands"), before, strict=True):
        until(partial(has_grown, cluster, metric, count), metric)
    wait_in_sync(cluster, admin, name)
    produce(cluster.bootstrap, name, ["c"])
    until(partial(are_same, cluster, name), "the same bytes")
    assert values_kept(cluster, name) == ["a", "b", "c"]


@pytest.mark.parametrize("governs", [1, 0], ids=["ours-governs", "kafka-governs"])
def test_either_governs_both(cluster: Cluster, governs: int) -> None:
    make_controller(cluster, governs)
    for leader in (0, 1):
        name = f"governed-by-{governs}-led-by-{leader}"
        admin = create(cluster, name, [leader, 1 - leader])
        values = [f"{number:04}" for number in range(RECORDS)]
        produce(cluster.bootstrap, name, values)
        until(partial(are_same, cluster, name), "the same bytes")
        assert values_kept(cluster, name) == values
        admin.create_partitions([NewPartitions(name, 3)])[name].result(TIMEOUT_S)
        admin.delete_topics([name])[name].result(TIMEOUT_S)
        for home in (cluster.home / "data", cluster.home / "ours" / "data"):
            until(partial(is_gone, home, name), f"no {name} in {home}")
    assert controller(cluster) == governs


@pytest.mark.parametrize("governs", [0, 1], ids=["kafka-governs", "ours-governs"])
def test_our_restart_takes_nothing_from_anybody(cluster: Cluster, governs: int) -> None:
    """Our broker shuts down in order and returns; Kafka's then is the controller."""
    make_controller(cluster, governs)
    name = f"restarted-under-{governs}"
    admin = create(cluster, name, [1, 0])
    produce(cluster.bootstrap, name, ["a"])
    cluster.ours.stop()
    produce(cluster.bootstrap, name, ["b"])
    cluster.ours.start()
    wait_in_sync(cluster, admin, name)
    produce(cluster.ours.bootstrap, name, ["c"])
    until(partial(are_same, cluster, name), "the same bytes")
    assert values_kept(cluster, name) == ["a", "b", "c"]
    ours = AdminClient({"bootstrap.servers": cluster.ours.bootstrap})
    until(lambda: len(ours.list_topics(timeout=10).brokers) == 2, "two brokers")


@pytest.mark.parametrize("leader", [0, 1], ids=["kafka-leads", "ours-leads"])
def test_records_below_min_insync_replicas_are_not_read_whichever_broker_leads(
    cluster: Cluster, leader: int
) -> None:
    """KIP-966: below min.insync.replicas the high watermark does not advance."""
    make_controller(cluster, leader)
    name = f"too-few-under-{leader}"
    create(cluster, name, [leader, 1 - leader], min_insync_replicas="2")
    bootstrap = (cluster.bootstrap, cluster.ours.bootstrap)[leader]
    produce(bootstrap, name, ["a"])
    until(lambda: end_of(bootstrap, name) == 1, "the first record is committed")
    other = (cluster.ours.pid, cluster.kafka.pid)[leader]
    with standing_still(other):
        # A paused follower without new records stays in sync until its session ends.
        produce(bootstrap, name, ["b"], acks="1")
        until(lambda: kept_isr(cluster, name) == (leader,), "the leader is alone")
        # Give the leader time to receive the state that the znode has already.
        time.sleep(1)
        produce(bootstrap, name, ["c"], acks="1")
        assert end_of(bootstrap, name) in (1, None)
    until(lambda: end_of(bootstrap, name) == 3, "all is committed")
    until(partial(are_same, cluster, name), "the same bytes")
    assert values_kept(cluster, name) == ["a", "b", "c"]


def test_znodes_that_kafka_has_written_mean_what_we_would_write(
    cluster: Cluster,
) -> None:
    """Compare all fields except timestamps, host names of Java and order of configs."""
    make_controller(cluster, 0)
    create(cluster, "znodes", [0, 1])
    key = TopicPartition("znodes", 0)

    async def ask(session: ZooKeeperSession) -> dict[str, bytes]:
        wanted = [
            *(paths.broker(0), paths.CONTROLLER, paths.CLUSTER_ID),
            *(paths.topic("znodes"), paths.partition_state(key)),
            *(paths.topic_config("znodes"), paths.CONTROLLER_EPOCH),
        ]
        return {path: (await session.get(path))[0] for path in wanted}

    found = ask_zookeeper(cluster, ask)

    def same(path: str, ours: bytes) -> None:
        theirs, mine = json.loads(found[path]), json.loads(ours)
        for each in (theirs, mine):
            each.pop("timestamp", None)
            # Only Kafka has a JMX port.
            each.pop("jmx_port", None)
        assert mine == theirs

    same(paths.broker(0), write_broker(read_broker(found[paths.broker(0)]), 0))
    same(paths.CONTROLLER, write_controller(0, 0))
    cluster_id = read_cluster_id(found[paths.CLUSTER_ID])
    same(paths.CLUSTER_ID, write_cluster_id(cluster_id))
    topic = read_topic(found[paths.topic("znodes")])
    assert topic.partitions == {0: ReplicaAssignment((0, 1))}
    same(paths.topic("znodes"), write_topic(topic))
    state = read_leadership(found[paths.partition_state(key)], 0)
    assert (state.leader, state.isr) == (0, (0, 1))
    same(paths.partition_state(key), write_leadership(state))
    config = found[paths.topic_config("znodes")]
    same(paths.topic_config("znodes"), write_config(read_config(config)))
    assert int(found[paths.CONTROLLER_EPOCH]) == state.controller_epoch


@pytest.mark.parametrize("leader", [0, 1], ids=["kafka-leads", "ours-leads"])
def test_a_follower_that_keeps_up_is_waited_for(cluster: Cluster, leader: int) -> None:
    """It is outside the ISR but may join it: ``shouldWaitForReplicaToJoinIsr``."""
    make_controller(cluster, 0)
    epoch, _ = ask_zookeeper(cluster, lambda it: it.get(paths.CONTROLLER_EPOCH))
    ports = {0: cluster.ports.data, 1: cluster.ours.port}
    where = (f"invented-{leader}", leader, ports, (0, int(epoch)))
    # Less than replica.lag.time.max.ms of both brokers.
    assert in_time(keeping_up, 2, *where) == KEPT_UP
