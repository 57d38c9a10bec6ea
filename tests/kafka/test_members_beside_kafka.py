"""Our broker in one cluster with Apache Kafka's, under either's controller.

ZooKeeper, Kafka 3.9 as broker 0 and, at first, controller, and ours as broker 1. Each
reads the znodes that the other has written, and obeys when the other is controller.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.client.background import background
from broker.controller.assignment import ReplicaAssignment
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import (
    read_broker,
    read_cluster_id,
    read_config,
    read_controller,
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
from broker.zookeeper.session import ZooKeeperSession
from broker.zookeeper.znodes import NoNode
from experiments.processes.child import Binding
from experiments.processes.zookeeper import start_zookeeper, wait_for_zookeeper
from experiments.worlds.kafka import nodes
from experiments.worlds.kafka.zookeeper_mode import VERSION, properties
from tests.broker.apis.requests import values_of
from tests.kafka.invented import KEPT_UP, in_time, keeping_up
from tests.live.broker_process import BrokerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.live]

TIMEOUT_S = 60.0
RECORDS = 200


class Cluster:
    """Kafka's broker 0 and our broker 1, both running."""

    def __init__(self, at: Path, stack: ExitStack) -> None:
        self.home = at
        self.ports = nodes.Ports.free()
        bound = Binding(parent=os.getpid(), cpu=None, nice=0)
        zookeeper = stack.enter_context(
            start_zookeeper(at, self.ports.zookeeper, bound, lambda: None)
        )
        wait_for_zookeeper(zookeeper, self.ports.zookeeper, TIMEOUT_S)
        keys = properties(
            at,
            self.ports,
            {
                "replica.lag.time.max.ms": "3000",
                # It is stopped for a while, which must not end its session.
                "zookeeper.session.timeout.ms": "30000",
                "controlled.shutdown.retry.backoff.ms": "500",
            },
            control_plane=False,
        )
        site = nodes.Site(at=at, binding=bound, tick=lambda: None)
        kafka = stack.enter_context(nodes.broker(VERSION, site, self.ports, keys))
        nodes.wait_for_broker(kafka, self.ports, TIMEOUT_S)
        self.kafka = kafka
        (at / "ours").mkdir()
        self.ours = BrokerProcess(
            at / "ours",
            broker_id="1",
            zookeeper_connect=f"127.0.0.1:{self.ports.zookeeper}",
            # It is stopped for a while, too; on a slow machine that ends its session.
            doorkeeper_log_level="error",
            zookeeper_session_timeout_ms="30000",
            replica_lag_time_max_ms="2500",
            offsets_topic_replication_factor="1",
            # A free port: there is no control plane here.
            doorkeeper_metrics_port=str(self.ports.control),
        )
        stack.callback(self.ours.close)
        self.bootstrap = f"127.0.0.1:{self.ports.data}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


def count_of(cluster: Cluster, name: str) -> float:
    url = f"http://127.0.0.1:{cluster.ports.control}/metrics"
    with urllib.request.urlopen(url, timeout=10) as response:
        lines = response.read().decode().splitlines()
    metric = f"kafka_server_replicamanager_{name}_total "
    (value,) = (line.split()[-1] for line in lines if line.startswith(metric))
    return float(value)


def has_grown(cluster: Cluster, name: str, before: float) -> bool:
    return count_of(cluster, name) > before


def create(
    cluster: Cluster, name: str, leader_first: list[int], **configs: str
) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "two brokers")
    config = {key.replace("_", "."): value for key, value in configs.items()}
    topic = NewTopic(name, 1, replica_assignment=[leader_first], config=config)
    admin.create_topics([topic])[name].result(TIMEOUT_S)
    until(lambda: isr(admin, name) == {0, 1}, "both in sync")
    return admin


def isr(admin: AdminClient, name: str) -> set[int]:
    partitions = admin.list_topics(name, timeout=10).topics[name].partitions
    return set(partitions[0].isrs) if partitions else set()


def produce(bootstrap: str, name: str, values: list[str], acks: str = "all") -> None:
    failed: list[object] = []
    settings = {"bootstrap.servers": bootstrap, "acks": acks}
    # In order, even if one has to be repeated.
    producer = Producer({**settings, "max.in.flight.requests.per.connection": 1})
    for value in values:
        producer.produce(
            name, value, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


@pytest.mark.parametrize("leader", [0, 1], ids=["kafka-leads", "ours-leads"])
def test_all_replicas_have_what_is_acknowledged_whoever_leads(
    cluster: Cluster, leader: int
) -> None:
    name = f"led-by-{leader}"
    create(cluster, name, [leader, 1 - leader])
    values = [f"{number:04}" for number in range(RECORDS)]
    produce(cluster.bootstrap, name, values)
    until(partial(are_same, cluster, name), "the same bytes")
    assert _values(cluster, name) == values


def test_kafkas_controller_takes_a_lagging_follower_out_of_our_isr_and_in_again(
    cluster: Cluster,
) -> None:
    name = "lags"
    admin = create(cluster, name, [1, 0])
    before = count_of(cluster, "isrshrinks"), count_of(cluster, "isrexpands")
    os.kill(cluster.kafka.pid, signal.SIGSTOP)
    try:
        produce(cluster.ours.bootstrap, name, ["a", "b"], acks="1")
        # Longer than replica.lag.time.max.ms and a half: it is proposed by then.
        time.sleep(4.5)
    finally:
        os.kill(cluster.kafka.pid, signal.SIGCONT)
    # A slow machine may see it more than once.
    for metric, count in zip(("isrshrinks", "isrexpands"), before, strict=True):
        until(partial(has_grown, cluster, metric, count), metric)
    until(lambda: isr(admin, name) == {0, 1}, "both in sync")
    produce(cluster.bootstrap, name, ["c"])
    until(partial(are_same, cluster, name), "the same bytes")
    assert _values(cluster, name) == ["a", "b", "c"]


def ask_zookeeper(cluster: Cluster, ask: Callable[[ZooKeeperSession], Any]) -> Any:
    """Return what comes of asking in a session of its own."""

    async def main() -> Any:
        session = ZooKeeperSession(
            f"127.0.0.1:{cluster.ports.zookeeper}",
            timeout_ms=6000,
            connect=trio.open_tcp_stream,
            rng=random.Random(1),
        )
        async with background() as nursery:
            await nursery.start(session.run)
            answer = await ask(session)
            await session.close()
        return answer

    return trio.run(main)


def controller(cluster: Cluster) -> int | None:
    async def ask(session: ZooKeeperSession) -> int | None:
        try:
            return read_controller((await session.get(paths.CONTROLLER))[0])
        except NoNode:
            return None

    return ask_zookeeper(cluster, ask)


def make_controller(cluster: Cluster, broker: int) -> None:
    """Have a broker elected, as an operator does: whoever is faster gets it."""

    async def depose(session: ZooKeeperSession) -> None:
        with suppress(NoNode):
            await session.delete(paths.CONTROLLER)

    deadline_s = time.monotonic() + TIMEOUT_S
    while (found := controller(cluster)) != broker:
        assert time.monotonic() < deadline_s, f"{broker} is not elected"
        if found is not None:
            ask_zookeeper(cluster, depose)
        time.sleep(0.5)
    # Who has not heard of it sends clients to the last one, which refuses them.
    for bootstrap in (cluster.bootstrap, cluster.ours.bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        until(partial(names_controller, admin, broker), "it is named")


def names_controller(admin: AdminClient, broker: int) -> bool:
    """Tell whether the controller is known to be this one."""
    try:
        return admin.list_topics("", timeout=10).controller_id == broker
    except KafkaException as error:
        # A broker that no controller has told of any: librdkafka has it asked again.
        if error.args[0].code() != KafkaError._PARTIAL:
            raise
        return False


@pytest.mark.parametrize("governs", [1, 0], ids=["ours-governs", "kafka-governs"])
def test_either_governs_both(cluster: Cluster, governs: int) -> None:
    make_controller(cluster, governs)
    for leader in (0, 1):
        name = f"governed-by-{governs}-led-by-{leader}"
        admin = create(cluster, name, [leader, 1 - leader])
        values = [f"{number:04}" for number in range(RECORDS)]
        produce(cluster.bootstrap, name, values)
        until(partial(are_same, cluster, name), "the same bytes")
        assert _values(cluster, name) == values
        admin.create_partitions([NewPartitions(name, 3)])[name].result(TIMEOUT_S)
        admin.delete_topics([name])[name].result(TIMEOUT_S)
        for home in (cluster.home / "data", cluster.home / "ours" / "data"):
            until(partial(is_gone, home, name), f"no {name} in {home}")
    assert controller(cluster) == governs


@pytest.mark.parametrize("governs", [0, 1], ids=["kafka-governs", "ours-governs"])
def test_our_restart_takes_nothing_from_anybody(cluster: Cluster, governs: int) -> None:
    """It hands over and comes back; if it governed, Kafka's broker does then."""
    make_controller(cluster, governs)
    name = f"restarted-under-{governs}"
    admin = create(cluster, name, [1, 0])
    produce(cluster.bootstrap, name, ["a"])
    cluster.ours.stop()
    produce(cluster.bootstrap, name, ["b"])
    cluster.ours.start()
    until(lambda: isr(admin, name) == {0, 1}, "both in sync")
    produce(cluster.ours.bootstrap, name, ["c"])
    until(partial(are_same, cluster, name), "the same bytes")
    assert _values(cluster, name) == ["a", "b", "c"]
    ours = AdminClient({"bootstrap.servers": cluster.ours.bootstrap})
    until(lambda: len(ours.list_topics(timeout=10).brokers) == 2, "two brokers")


@pytest.mark.parametrize("leader", [0, 1], ids=["kafka-leads", "ours-leads"])
def test_what_too_few_replicas_have_is_not_read_whoever_leads(
    cluster: Cluster, leader: int
) -> None:
    """KIP-966: with fewer in sync than min.insync.replicas nothing is committed."""
    make_controller(cluster, leader)
    name = f"too-few-under-{leader}"
    create(cluster, name, [leader, 1 - leader], min_insync_replicas="2")
    bootstrap = (cluster.bootstrap, cluster.ours.bootstrap)[leader]
    produce(bootstrap, name, ["a"])
    until(lambda: end_of(bootstrap, name) == 1, "the first record is committed")
    other = (cluster.ours.pid, cluster.kafka.pid)[leader]
    os.kill(other, signal.SIGSTOP)
    try:
        until(lambda: kept_isr(cluster, name) == (leader,), "the leader is alone")
        produce(bootstrap, name, ["b"], acks="1")
        # Time for the leader to hear what the znode says already.
        time.sleep(1)
        produce(bootstrap, name, ["c"], acks="1")
        assert end_of(bootstrap, name) in (1, None)
    finally:
        os.kill(other, signal.SIGCONT)
    until(lambda: end_of(bootstrap, name) == 3, "all is committed")
    until(partial(are_same, cluster, name), "the same bytes")
    assert _values(cluster, name) == ["a", "b", "c"]


def end_of(bootstrap: str, name: str) -> int | None:
    """Return where consumers of a topic's only partition may read up to.

    None: the leader has a new epoch, and does not say before all have its beginning.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    try:
        _, high = consumer.get_watermark_offsets(Place(name, 0), timeout=TIMEOUT_S)
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE:
            raise
        return None
    finally:
        consumer.close()
    return int(high)


def kept_isr(cluster: Cluster, name: str) -> tuple[int, ...]:
    """Return the ISR that ZooKeeper has of a topic's only partition."""
    path = paths.partition_state(TopicPartition(name, 0))
    found = ask_zookeeper(cluster, lambda session: session.get(path))
    return read_leadership(found[0], 0).isr


def test_znodes_that_kafka_has_written_mean_what_we_would_write(
    cluster: Cluster,
) -> None:
    """Every field but time stamps, host names of Java's and configs' order."""
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
            # Its metrics are Java's.
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
def test_who_keeps_up_is_waited_for(cluster: Cluster, leader: int) -> None:
    """Not in the ISR, it may join it: ``shouldWaitForReplicaToJoinIsr``."""
    make_controller(cluster, 0)
    epoch, _ = ask_zookeeper(cluster, lambda it: it.get(paths.CONTROLLER_EPOCH))
    ports = {0: cluster.ports.data, 1: cluster.ours.port}
    where = (f"invented-{leader}", leader, ports, (0, int(epoch)))
    # Less than replica.lag.time.max.ms of either.
    assert in_time(keeping_up, 2, *where) == KEPT_UP


def is_gone(home: Path, name: str) -> bool:
    return not list(home.glob(f"{name}-?"))


def are_same(cluster: Cluster, name: str) -> bool:
    return _log(cluster, name, 0) == _log(cluster, name, 1)


def _log(cluster: Cluster, name: str, broker: int) -> bytes:
    homes = {0: cluster.home / "data", 1: cluster.home / "ours" / "data"}
    path = homes[broker] / f"{name}-0" / "00000000000000000000.log"
    return path.read_bytes().rstrip(b"\0")


def _values(cluster: Cluster, name: str) -> list[str]:
    return [value.decode() for _, value in values_of(_log(cluster, name, 1))]
