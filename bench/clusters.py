"""Clusters of three brokers under a ZooKeeper: Doorkeeper's, and Apache Kafka's.

Both have Kafka's defaults except for the settings that a cluster on one machine needs,
and each JVM has the same heap. Only the brokers' CPU time is counted, not ZooKeeper's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from bench.brokers import Running, directory
from experiments.processes.child import Binding
from experiments.processes.children import Child, bound_child
from experiments.processes.loopback import HOST, free_ports
from experiments.processes.zookeeper import start_zookeeper, wait_for_zookeeper
from experiments.worlds.kafka import nodes
from experiments.worlds.kafka.zookeeper_mode import VERSION, properties

BROKERS: Final = 3
SESSION_S: Final = 6
# Resolution of session expiry. The default of 3 s would add as much random delay.
_TICK_MS: Final = 500
_START_S, _WHOLE_S = 120.0, 120.0
_LOOK_S: Final = 0.1
_SETTINGS: Final = {
    "zookeeper.session.timeout.ms": str(SESSION_S * 1000),
    "offsets.topic.replication.factor": str(BROKERS),
    "offsets.topic.num.partitions": "3",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    # The brokers are killed after the last measurement.
    "controlled.shutdown.enable": "false",
}

# Starts broker NUMBER in a directory, with its ports and keys.
_StartBroker = Callable[[Path, nodes.Ports, Mapping[str, str], int], Child]


class Cluster:
    """Three running brokers; ``start_broker`` starts one of them."""

    def __init__(
        self, name: str, at: Path, start_broker: _StartBroker, stack: ExitStack
    ) -> None:
        self.name = name
        self._at = at
        self._start_broker = start_broker
        (self._zookeeper_port,) = free_ports(1)
        bound = _bound()
        zookeeper = start_zookeeper(
            at, self._zookeeper_port, bound, _nothing, tick_ms=_TICK_MS
        )
        stack.enter_context(zookeeper)
        wait_for_zookeeper(zookeeper, self._zookeeper_port, _START_S)
        self._ports = [nodes.Ports.free() for _ in range(BROKERS)]
        self._children: list[Child] = []
        stack.callback(self._end)
        self._children += [self._started(number) for number in range(BROKERS)]
        for number in range(BROKERS):
            self._await_answer(number)

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for clients."""
        return ",".join(f"{HOST}:{each.data}" for each in self._ports)

    def running(self, number: int) -> Running:
        """Return one of its brokers."""
        return Running(
            name=self.name,
            port=self._ports[number].data,
            process=psutil.Process(self._children[number].pid),
            start_s=0.0,
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its brokers so far."""
        return sum(self.running(number).cpu_s() for number in range(BROKERS))

    def kill(self, number: int) -> None:
        """Kill a broker."""
        self._children[number].__exit__(None, None, None)

    def restart(self, number: int) -> None:
        """Start a killed broker again, on its data."""
        self._children[number] = self._started(number)
        self._await_answer(number)

    def await_whole(self, admin: Any, topic: str | None = None) -> None:
        """Wait until all brokers are registered and a topic's replicas are in sync."""
        ends_s = time.monotonic() + _WHOLE_S
        while not _is_whole(admin, topic):
            if time.monotonic() > ends_s:
                raise RuntimeError(f"{self.name} lacks brokers, or replicas of {topic}")
            time.sleep(_LOOK_S)

    def _started(self, number: int) -> Child:
        at = self._at / f"broker-{number}"
        at.mkdir(exist_ok=True)
        keys = {
            **_SETTINGS,
            "broker.id": str(number),
            "zookeeper.connect": f"{HOST}:{self._zookeeper_port}",
        }
        return self._start_broker(at, self._ports[number], keys, number)

    def _await_answer(self, number: int) -> None:
        nodes.wait_for_broker(self._children[number], self._ports[number], _START_S)

    def _end(self) -> None:
        for child in self._children:
            child.__exit__(None, None, None)


def _is_whole(admin: Any, topic: str | None) -> bool:
    from confluent_kafka import KafkaException

    try:
        metadata = admin.list_topics(timeout=5)
    except KafkaException:
        # The broker that received the request is down.
        return False
    if len(metadata.brokers) < BROKERS or metadata.controller_id < 0:
        return False
    if topic is None:
        return True
    found = metadata.topics.get(topic)
    return found is not None and all(
        it.leader >= 0 and len(it.isrs) == BROKERS for it in found.partitions.values()
    )


def doorkeepers() -> AbstractContextManager[Cluster]:
    """Run three Doorkeeper brokers."""
    return _cluster("doorkeeper", _doorkeeper)


def kafkas() -> AbstractContextManager[Cluster]:
    """Run three Apache Kafka 3.9 brokers; raise `NoKafka`."""
    return _cluster("kafka", _kafka)


@contextlib.contextmanager
def _cluster(name: str, start_broker: _StartBroker) -> Iterator[Cluster]:
    with ExitStack() as stack:
        at = stack.enter_context(directory())
        yield Cluster(name, at, start_broker, stack)


def _doorkeeper(
    at: Path, ports: nodes.Ports, keys: Mapping[str, str], number: int
) -> Child:
    own = {
        **keys,
        "listeners": f"PLAINTEXT://{HOST}:{ports.data}",
        "log.dirs": str(at / "data"),
    }
    command = [sys.executable, "-m", "doorkeeper", "serve"]
    for key, value in own.items():
        command += ["--set", f"{key}={value}"]
    return bound_child(f"doorkeeper-{number}", command, at, _bound(), _nothing)


def _kafka(at: Path, ports: nodes.Ports, keys: Mapping[str, str], number: int) -> Child:
    site = nodes.Site(at=at, binding=_bound(), tick=_nothing)
    own = properties(at, ports, keys, control_plane=False)
    return nodes.broker(VERSION, site, ports, own)


def _bound() -> Binding:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return Binding(parent=os.getpid(), cpus=None, nice=nice)


def _nothing() -> None:
    """Wait without a message."""
