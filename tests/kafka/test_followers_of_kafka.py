"""Our broker in a cluster of Apache Kafka's, under Kafka's own controller.

ZooKeeper, Kafka 3.9 as broker 0 and controller, and ours as broker 1: the session that
registers ours is held by ZooKeeper's shell, the rest is ours. Kafka's controller sends
UpdateMetadata and LeaderAndIsr as to one of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from experiments.processes.child import Binding
from experiments.processes.zookeeper import start_zookeeper, wait_for_zookeeper
from experiments.worlds.kafka import apache_kafka, nodes
from experiments.worlds.kafka.zookeeper_mode import VERSION, properties
from tests.broker.apis.requests import values_of
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
            at, self.ports, {"replica.lag.time.max.ms": "3000"}, control_plane=False
        )
        site = nodes.Site(at=at, binding=bound, tick=lambda: None)
        kafka = stack.enter_context(nodes.broker(VERSION, site, self.ports, keys))
        nodes.wait_for_broker(kafka, self.ports, TIMEOUT_S)
        # Clients take brokers of another cluster for strangers.
        (at / "ours" / "data").mkdir(parents=True)
        identity = (at / "data" / "meta.properties").read_text()
        (at / "ours" / "data" / "meta.properties").write_text(
            identity.replace("broker.id=0", "broker.id=1")
        )
        self.kafka = kafka
        self.ours = BrokerProcess(
            at / "ours",
            node_id="1",
            replica_lag_time_max_ms="1000",
            # Topics are the controller's affair, and ours is Kafka's.
            auto_create_topics_enable="false",
            # A free port: there is no control plane here.
            doorkeeper_metrics_port=str(self.ports.control),
        )
        stack.callback(self.ours.close)
        self.shell = _shell(at, self.ports)
        stack.callback(self._leave)
        self._register()
        self.bootstrap = f"127.0.0.1:{self.ports.data}"

    def _register(self) -> None:
        address = {"host": "127.0.0.1", "port": self.ours.port}
        node = {
            "version": 5,
            "timestamp": "0",
            "jmx_port": -1,
            "host": address["host"],
            "port": address["port"],
            "endpoints": [f"PLAINTEXT://127.0.0.1:{self.ours.port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {},
        }
        text = json.dumps(node, separators=(",", ":"))
        self.tell_shell(f"create -e /brokers/ids/1 '{text}'")

    def tell_shell(self, command: str) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.write(command + "\n")
        self.shell.stdin.flush()

    def _leave(self) -> None:
        self.shell.kill()
        self.shell.communicate()


def _shell(at: Path, ports: nodes.Ports) -> subprocess.Popen[str]:
    """Start ZooKeeper's shell, whose session lasts as long as it runs."""
    main = "org.apache.zookeeper.ZooKeeperMain"
    jars = apache_kafka.jars(VERSION)
    command = [str(apache_kafka.java()), "-Xmx64M", "-cp", f"{jars}/*", main]
    with (at / "shell.out").open("w") as output:
        return subprocess.Popen(
            [*command, "-server", f"127.0.0.1:{ports.zookeeper}"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )


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


def create(cluster: Cluster, name: str, leader_first: list[int]) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "two brokers")
    topic = NewTopic(name, 1, replica_assignment=[leader_first])
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
    until(lambda: _log(cluster, name, 0) == _log(cluster, name, 1), "the same bytes")
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
        time.sleep(3)
    finally:
        os.kill(cluster.kafka.pid, signal.SIGCONT)
    # A slow machine may see it more than once.
    for metric, count in zip(("isrshrinks", "isrexpands"), before, strict=True):
        until(partial(has_grown, cluster, metric, count), metric)
    until(lambda: isr(admin, name) == {0, 1}, "both in sync")
    produce(cluster.bootstrap, name, ["c"])
    until(lambda: _log(cluster, name, 0) == _log(cluster, name, 1), "the same bytes")
    assert _values(cluster, name) == ["a", "b", "c"]


def _log(cluster: Cluster, name: str, broker: int) -> bytes:
    homes = {0: cluster.home / "data", 1: cluster.home / "ours" / "data"}
    path = homes[broker] / f"{name}-0" / "00000000000000000000.log"
    return path.read_bytes().rstrip(b"\0")


def _values(cluster: Cluster, name: str) -> list[str]:
    return [value.decode() for _, value in values_of(_log(cluster, name, 1))]
