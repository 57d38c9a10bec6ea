"""Three brokers and a ZooKeeper as processes: killed, frozen, isolated, reconnected."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from experiments.processes.child import Binding
from experiments.processes.children import Child
from experiments.processes.loopback import HOST, free_ports
from experiments.processes.own_zookeeper import start_own_zookeeper
from experiments.processes.zookeeper import wait_for_zookeeper
from tests.bad_days.proxies import Proxies
from tests.live.broker_process import BrokerProcess
from tests.live.verifying import Quiet

BROKERS: Final = 3
TOPIC: Final = "t"
PARTITIONS: Final = 6
SESSION_MS: Final = 6000
SETTINGS: Final = {
    "zookeeper_session_timeout_ms": str(SESSION_MS),
    "default_replication_factor": str(BROKERS),
    "offsets_topic_replication_factor": str(BROKERS),
    "offsets_topic_num_partitions": "3",
    "min_insync_replicas": "2",
    "replica_lag_time_max_ms": "5000",
    "auto_create_topics_enable": "false",
}
_START_S: Final = 60.0
_LOOK_S: Final = 0.1


class LiveCluster:
    """The processes, with a proxy before each broker and before its ZooKeeper."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.proxies = stack.enter_context(Proxies())
        (self._zookeeper_port,) = free_ports(1)
        self._zookeeper: Child | None = None
        self.start_zookeeper()
        stack.callback(self.stop_zookeeper)
        self.brokers: list[BrokerProcess] = []
        # Proxies of each broker: the one that leads to it, and the one to ZooKeeper.
        self.lines: list[tuple[int, int]] = []
        for number, port in enumerate(free_ports(BROKERS)):
            self._start_broker(number, port)
        self.bootstrap = ",".join(f"{HOST}:{front}" for front, _ in self.lines)
        self.admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "logger": Quiet()}
        )

    def _start_broker(self, number: int, port: int) -> None:
        front = self.proxies.listen(port)
        to_zookeeper = self.proxies.listen(self._zookeeper_port)
        self.lines.append((front, to_zookeeper))
        at = self._directory / f"broker-{number}"
        at.mkdir()
        broker = BrokerProcess(
            at,
            broker_id=str(number),
            listeners=f"PLAINTEXT://{HOST}:{port}",
            advertised_listeners=f"PLAINTEXT://{HOST}:{front}",
            zookeeper_connect=f"{HOST}:{to_zookeeper}",
            doorkeeper_log_level="error",
            **SETTINGS,
        )
        self.brokers.append(broker)
        self._stack.callback(broker.close)

    def create_topic(self) -> None:
        """Create the topic with a replica on each broker, after all have joined."""
        until_s = time.monotonic() + _START_S
        while not self.is_whole():
            assert time.monotonic() < until_s, "the brokers do not find each other"
            time.sleep(_LOOK_S)
        new = NewTopic(TOPIC, PARTITIONS, BROKERS)
        self.admin.create_topics([new])[TOPIC].result(30)

    # ---- observed state -------------------------------------------------------------

    def is_whole(self) -> bool:
        """Return whether each partition has a leader and a full ISR."""
        try:
            metadata = self.admin.list_topics(timeout=5)
        except KafkaException:
            # The queried broker is down, or has no metadata yet.
            return False
        if len(metadata.brokers) < BROKERS:
            return False
        topics = metadata.topics.values()
        partitions = [it for topic in topics for it in topic.partitions.values()]
        return all(it.leader >= 0 and len(it.isrs) == BROKERS for it in partitions)

    def leader(self, partition: int) -> int:
        """Return the leader of a partition."""
        return self._seen(lambda it: it.topics[TOPIC].partitions[partition].leader)

    def controller(self) -> int:
        """Return the controller's broker id."""
        return self._seen(lambda it: it.controller_id)

    def _seen(self, look: Callable[[Any], int]) -> int:
        """Return a broker id from the metadata, as soon as there is one."""
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s:
            try:
                found = look(self.admin.list_topics(timeout=5))
            except (KafkaException, KeyError):
                # The queried broker is down, or has no metadata yet.
                found = -1
            if found >= 0:
                return found
            time.sleep(_LOOK_S)
        raise AssertionError("nobody leads or governs")

    # ---- faults ---------------------------------------------------------------------

    def freeze(self, broker: int) -> None:
        """Stop a broker's process; its sockets stay open."""
        os.kill(self.brokers[broker].pid, signal.SIGSTOP)

    def thaw(self, broker: int) -> None:
        """Continue a stopped broker."""
        os.kill(self.brokers[broker].pid, signal.SIGCONT)

    def cut_off(self, broker: int) -> None:
        """Isolate a broker from all clients, brokers and ZooKeeper."""
        self.proxies.cut(*self.lines[broker])

    def let_back(self, broker: int) -> None:
        """Undo `cut_off`."""
        self.proxies.heal(*self.lines[broker])

    def stop_zookeeper(self) -> None:
        """Kill ZooKeeper."""
        if self._zookeeper is not None:
            self._zookeeper.__exit__(None, None, None)
            self._zookeeper = None

    def start_zookeeper(self) -> None:
        """Start ZooKeeper with its previous data."""
        bound = Binding(parent=os.getpid(), cpus=None, nice=0)
        self._zookeeper = start_own_zookeeper(
            self._directory, self._zookeeper_port, bound, lambda: None
        )
        wait_for_zookeeper(self._zookeeper, self._zookeeper_port, _START_S)
