"""Apache Kafka's broker and Doorkeeper's in one cluster, with helpers for tests."""

from __future__ import annotations

import os
import random
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.background_tasks import background
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import read_controller
from broker.coordination.zookeeper.layout.topic_records import read_leadership
from broker.protocol.topic_partition import TopicPartition
from broker.zookeeper.znodes import NoNode
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from experiments.processes.child import Binding
from experiments.processes.children import Child
from experiments.processes.zookeeper import start_zookeeper, wait_for_zookeeper
from experiments.worlds.kafka import nodes
from experiments.worlds.kafka.zookeeper_mode import VERSION, properties
from tests.broker.apis.requests import values_of
from tests.live.broker_process import BrokerProcess

TIMEOUT_S = 60.0


class Cluster:
    """Kafka's broker 0 and Doorkeeper's broker 1, both running."""

    def __init__(
        self,
        at: Path,
        stack: ExitStack,
        start: Callable[..., Child] = start_zookeeper,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``start`` starts ZooKeeper, by default Java's; ``settings`` apply to both."""
        self.home = at
        self.ports = nodes.Ports.free()
        bound = Binding(parent=os.getpid(), cpus=None, nice=0)
        self._start = partial(start, at, self.ports.zookeeper, bound, lambda: None)
        # ZooKeeper must outlive the brokers, also after a restart: they need it to
        # stop.
        self._zookeepers = stack.enter_context(ExitStack())
        self.start_zookeeper()
        keys = properties(
            at,
            self.ports,
            {
                "replica.lag.time.max.ms": "3000",
                # Tests pause the broker; its session must not expire meanwhile.
                "zookeeper.session.timeout.ms": "30000",
                "controlled.shutdown.retry.backoff.ms": "500",
                # The tests' records are years old; retention would soon delete them.
                "log.retention.ms": "-1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                **settings,
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
            # Tests pause this broker, too; on a slow machine its session expires.
            doorkeeper_log_level="error",
            zookeeper_session_timeout_ms="30000",
            replica_lag_time_max_ms="2500",
            offsets_topic_replication_factor="1",
            log_retention_ms="-1",
            transaction_state_log_replication_factor="1",
            transaction_state_log_min_isr="1",
            # Without a control plane this port is free.
            doorkeeper_metrics_port=str(self.ports.control),
            **settings,
        )
        stack.callback(self.ours.close)
        self.bootstrap = f"127.0.0.1:{self.ports.data}"

    def start_zookeeper(self) -> None:
        """Start ZooKeeper with the data of its last run, if there is any."""
        self.zookeeper = self._zookeepers.enter_context(self._start())
        wait_for_zookeeper(self.zookeeper, self.ports.zookeeper, TIMEOUT_S)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Pause a process; after the signal alone, busy threads may still run."""
    states = Path(f"/proc/{pid}/task")
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: all(map(_is_stopped, states.iterdir())), "it stands still")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_stopped(thread: Path) -> bool:
    try:
        told = (thread / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        # The thread has just ended; others may still run.
        return False
    # The state follows the name, which is in brackets and may contain anything.
    return told.rpartition(") ")[2].startswith("T")


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
    wait_in_sync(cluster, admin, name)
    return admin


def wait_in_sync(cluster: Cluster, admin: AdminClient, name: str) -> None:
    """Wait until clients see both replicas of a topic in sync."""
    try:
        until(lambda: isr(admin, name) == {0, 1}, "both in sync")
    except AssertionError as late:
        late.add_note(
            f"told: {isr(admin, name)}, in ZooKeeper: {kept_isr(cluster, name)}, "
            f"controller: {controller(cluster)}, ours says: {cluster.ours.errors()}"
        )
        raise


def isr(admin: AdminClient, name: str) -> set[int]:
    partitions = admin.list_topics(name, timeout=10).topics[name].partitions
    return set(partitions[0].isrs) if partitions else set()


def produce(bootstrap: str, name: str, values: list[str], acks: str = "all") -> None:
    failed: list[object] = []
    settings = {"bootstrap.servers": bootstrap, "acks": acks}
    # One request in flight keeps the order across retries.
    producer = Producer({**settings, "max.in.flight.requests.per.connection": 1})
    for value in values:
        producer.produce(
            name, value, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def ask_zookeeper(cluster: Cluster, ask: Callable[[ZooKeeperSession], Any]) -> Any:
    """Return the result of ``ask`` in a ZooKeeper session of its own."""

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
    """Elect ``broker``: delete the controller znode until that broker wins."""

    async def depose(session: ZooKeeperSession) -> None:
        with suppress(NoNode):
            await session.delete(paths.CONTROLLER)

    deadline_s = time.monotonic() + TIMEOUT_S
    while (found := controller(cluster)) != broker:
        assert time.monotonic() < deadline_s, f"{broker} is not elected"
        if found is not None:
            ask_zookeeper(cluster, depose)
        time.sleep(0.5)
    # A broker with an outdated view sends clients to the former controller.
    for bootstrap in (cluster.bootstrap, cluster.ours.bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        until(partial(names_controller, admin, broker), "it is named")


def names_controller(admin: AdminClient, broker: int) -> bool:
    """Return whether clients see ``broker`` as the controller."""
    try:
        return admin.list_topics("", timeout=10).controller_id == broker
    except KafkaException as error:
        # The broker has no metadata from a controller yet: librdkafka asks again.
        if error.args[0].code() != KafkaError._PARTIAL:
            raise
        return False


def end_of(bootstrap: str, name: str) -> int | None:
    """Return the end offset for consumers of a topic's only partition.

    None: under a new leader epoch, the leader does not answer until all replicas have
    its first record.
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
    """Return the ISR of a topic's only partition in ZooKeeper."""
    path = paths.partition_state(TopicPartition(name, 0))
    found = ask_zookeeper(cluster, lambda session: session.get(path))
    return read_leadership(found[0], 0).isr


def is_gone(home: Path, name: str) -> bool:
    return not list(home.glob(f"{name}-?"))


def are_same(cluster: Cluster, name: str) -> bool:
    return _log(cluster, name, 0) == _log(cluster, name, 1)


def _log(cluster: Cluster, name: str, broker: int) -> bytes:
    homes = {0: cluster.home / "data", 1: cluster.home / "ours" / "data"}
    path = homes[broker] / f"{name}-0" / "00000000000000000000.log"
    return path.read_bytes().rstrip(b"\0")


def values_kept(cluster: Cluster, name: str) -> list[str]:
    return [value.decode() for _, value in values_of(_log(cluster, name, 1))]


def committed(bootstrap: str, name: str, count: int) -> list[str]:
    """Return the committed values of a partition, at least ``count`` of them."""
    settings = {"group.id": "committed", "isolation.level": "read_committed"}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "enable.partition.eof": True, **settings}
    )
    consumer.assign([Place(name, 0, 0)])
    found: list[str] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
        elif message is not None and len(found) >= count:
            break
    consumer.close()
    return found


def offset_of(bootstrap: str, group: str, name: str) -> int:
    """Return the committed offset of a group in the first partition of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([Place(name, 0)], timeout=TIMEOUT_S)
    consumer.close()
    return found.offset


def transact(
    bootstrap: str, transactional_id: str, name: str, values: list[str], group: str
) -> None:
    """Send each value and an offset in a transaction; abort every second one."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    # librdkafka's producer waits forever if three attempts find no coordinator.
    member.committed([Place(name, 0)], TIMEOUT_S)
    for number, value in enumerate(values):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.send_offsets_to_transaction(
            [Place(name, 0, number)], member.consumer_group_metadata(), TIMEOUT_S
        )
        assert producer.flush(TIMEOUT_S) == 0
        end = producer.abort_transaction if number % 2 else producer.commit_transaction
        end(TIMEOUT_S)
    member.close()


def leaders(admin: AdminClient, name: str) -> dict[int, int]:
    """Return the leader of each partition of a topic."""
    partitions = admin.list_topics(name, timeout=10).topics[name].partitions
    return {number: each.leader for number, each in partitions.items()}
