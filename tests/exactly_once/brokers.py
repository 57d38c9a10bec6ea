"""Brokers that a schedule kills: one `doorkeeper serve`, or three of `cluster up`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from doorkeeper.local_cluster.cluster_control import send_command
from tests.live.broker_process import BrokerProcess
from tests.live.cluster_process import cluster
from tests.live.verifying import Quiet

# One partition of each coordinator topic, so each coordinator is a single broker.
# Time-outs are short, since programs are killed often.
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "doorkeeper.log.level": "error",
}
_REPLICATED: Final = {
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
}
_LEADERS: Final = {
    "leader": "target",
    "transaction coordinator": "__transaction_state",
    "group coordinator": "__consumer_offsets",
}
_PATIENCE_S: Final = 60.0


class Brokers(Protocol):
    """Brokers by number."""

    bootstrap: str
    # Roles by which a schedule selects a broker.
    roles: tuple[str, ...]

    def number(self, role: str, draw: float) -> int | None:
        """Return the number of the broker in a role, or None.

        ``draw``, from [0, 1), selects one of several.
        """

    def kill(self, number: int) -> None:
        """Kill a broker, as a crash does."""

    def start(self, number: int) -> None:
        """Start a broker again, and wait until it listens."""


class OneBroker:
    """A single broker, with both coordinators."""

    roles = ("broker",)

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        settings = {key.replace(".", "_"): value for key, value in _SETTINGS.items()}
        self._process = BrokerProcess(directory, **settings)
        stack.callback(self._process.close)
        self.bootstrap = self._process.bootstrap

    def number(self, role: str, draw: float) -> int | None:
        """Return the number of the only broker."""
        return 0

    def kill(self, number: int) -> None:
        """Kill the broker."""
        self._process.kill()

    def start(self, number: int) -> None:
        """Start the broker on the same port."""
        self._process.start()


class ThreeBrokers:
    """Three brokers with replicas, and a ZooKeeper that is never killed."""

    roles = tuple(_LEADERS)

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory / "cluster"
        options = ["--brokers", "3", "--data", str(self._directory)]
        for key, value in {**_SETTINGS, **_REPLICATED}.items():
            options += ["--set", f"{key}={value}"]
        running = stack.enter_context(cluster(*options))
        self.bootstrap = running.bootstrap
        settings = {"bootstrap.servers": self.bootstrap, "logger": Quiet()}
        self._admin = AdminClient(settings)

    def number(self, role: str, draw: float) -> int | None:
        """Return the leader of a partition of the role's topic."""
        name = _LEADERS[role]
        try:
            topic = self._admin.list_topics(name, timeout=5).topics[name]
        except KafkaException:
            # The queried broker has been killed.
            return None
        leaders = [it.leader for it in topic.partitions.values() if it.leader >= 0]
        return leaders[int(draw * len(leaders))] if leaders else None

    def kill(self, number: int) -> None:
        """Kill a broker of the cluster."""
        send_command(self._directory, "kill", number)

    def start(self, number: int) -> None:
        """Start the broker again."""
        send_command(self._directory, "start", number)


def create_topics(brokers: Brokers, partitions: dict[str, int]) -> None:
    """Create topics with the default replication factor."""
    settings = {"bootstrap.servers": brokers.bootstrap, "logger": Quiet()}
    new = [NewTopic(name, count) for name, count in partitions.items()]
    admin = AdminClient(settings)
    for each in admin.create_topics(new).values():
        each.result(_PATIENCE_S)
