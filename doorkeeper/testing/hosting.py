"""The Trio run of a test's brokers, and the calls that a test can make.

One broker, or several with a ZooKeeper in memory; the brokers of a cluster reach each
other over TCP. Every public coroutine of `BrokerHost` is called from another thread or
process, through a `doorkeeper.testing.links.Link`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from broker.client.connection import Stream
from broker.client.consumer.consumer_record import ConsumerRecord, FetchedBatches
from broker.client.network_client import connect_tcp
from broker.cluster.partition import Partition
from broker.handling.api_registry import load_schemas
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from broker.protocol.messages.message import RequestMessage, ResponseMessage
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode_response, encode_request
from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.in_memory.zookeeper_server import ZooKeeperServer
from doorkeeper.local_cluster.cluster_settings import shared_settings
from doorkeeper.testing.advancing_clock import AdvancingClock
from doorkeeper.testing.node import HOST, BrokerNode
from doorkeeper.testing.observed_apis import OWN_CLIENT_ID
from doorkeeper.testing.received import ReceivedRequest
from doorkeeper.testing.request_faults import FaultRule
from planes.slices import Wake
from simulation.virtual_time.memory_network import MemoryNetwork, MemoryStream
from simulation.virtual_time.memory_zookeeper import memory_zookeeper

R = TypeVar("R", bound=ResponseMessage)

_ZOOKEEPER_HOST, _ZOOKEEPER_PORT = "zookeeper", 2181
_ZOOKEEPER_TICK_MS: Final = 500
_LOOK_S: Final = 0.002
_READ_BYTES: Final = 1 << 20
# Limit for a broker to become ready or to settle.
_PATIENCE_S: Final = 30.0
_CREATE_TOPICS_VERSION: Final = 5
# Defaults for tests: few threads and partitions, and no wait for group members.
_FOR_TESTS: Final = {
    "num.network.threads": "1",
    "num.io.threads": "4",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "connections.max.idle.ms": "-1",
}
_FOR_CLUSTERS: Final = {
    "zookeeper.connect": f"{_ZOOKEEPER_HOST}:{_ZOOKEEPER_PORT}",
    "zookeeper.session.timeout.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """The brokers of a host: ``brokers`` None is one without a cluster.

    ``data`` is a directory; None keeps the data in memory. Port 0 is any free one.
    """

    keys: Mapping[str, str]
    brokers: int | None = None
    data: Path | None = None
    port: int = 0


class BrokerHost:
    """The brokers of one test, and their clock."""

    def __init__(self, settings: HostSettings, clock: AdvancingClock) -> None:
        self._settings = settings
        self._clock = clock
        self._nursery: trio.Nursery
        self._nodes: list[BrokerNode] = []
        self._zookeeper = MemoryNetwork(now_ns=clock.now_ns, rng=random.Random())

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Start all brokers, and serve until `close`.

        :raises ConfigError: if a setting prevents the start.
        :raises ClusterError: if a setting belongs to a single broker.
        """
        load_schemas()
        settings = self._settings
        async with trio.open_nursery() as self._nursery:
            if settings.brokers is None:
                self._nodes = [self._node({**_FOR_TESTS, **settings.keys})]
            else:
                await self._nursery.start(self._server_of_zookeeper().run)
                keys = {**_FOR_TESTS, **settings.keys}
                shared = {**_FOR_CLUSTERS, **shared_settings(settings.brokers, keys)}
                self._nodes = [
                    self._node({**shared, "broker.id": str(number)}, f"broker-{number}")
                    for number in range(settings.brokers)
                ]
            async with trio.open_nursery() as starting:
                for node in self._nodes:
                    starting.start_soon(self._nursery.start, node.live)
            await self._settled(self._all_know_all, "every broker to know all others")
            task_status.started()
            await trio.sleep_forever()

    # ---- calls of the test ----------------------------------------------------------

    async def close(self) -> None:
        """Stop all brokers cleanly, and end the run."""
        async with trio.open_nursery() as stopping:
            for node in self._nodes:
                stopping.start_soon(node.stop)
        self._nursery.cancel_scope.cancel()

    async def ports(self) -> list[int]:
        """Return the port of each broker's clients."""
        await trio.lowlevel.checkpoint()
        return [node.port for node in self._nodes]

    async def advance(self, seconds: float) -> None:
        """Move the clock; return after the due work is done."""
        if self._settings.brokers is not None:
            raise ValueError(
                "advance: the brokers of a cluster have the machine's clock"
            )
        self._clock.advance(seconds)
        await self._settled(self._nothing_is_due, "the work that came due")

    async def create_topic(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        """Create a topic, and return when every partition has a leader everywhere.

        :raises KafkaError: if the broker refuses.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=(),
            configs=[
                CreatableTopicConfig(name=it, value=configs[it]) for it in configs
            ],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout=timedelta(seconds=_PATIENCE_S)
        )
        for node in self._serving():
            answer = await _send_request(node, request, _CREATE_TOPICS_VERSION)
            (row,) = answer.topics
            if row.error_code is not ErrorCode.not_controller:
                break
        if row.error_code is not ErrorCode.none:
            raise KafkaError(row.error_code, row.error_message)
        await self._settled(
            partial(self._is_led, name, partitions), f"leaders of topic {name!r}"
        )

    async def records(
        self, topic: str, partition: int | None, at_least: int, timeout_s: float
    ) -> list[ConsumerRecord]:
        """Return a topic's records, partition by partition, in the order of the log.

        :raises KafkaError: if there is no such topic or partition.
        :raises TimeoutError: if there are fewer than ``at_least`` after the time limit.
        """
        ends_s = time.monotonic() + timeout_s
        while True:
            found = self._records(topic, partition, must_exist=not at_least)
            if len(found) >= at_least:
                return found
            if time.monotonic() > ends_s:
                raise TimeoutError(
                    f"topic {topic!r} has {len(found)} records after {timeout_s:g} s, "
                    f"expected at least {at_least}"
                )
            await trio.sleep(_LOOK_S)

    async def requests(
        self,
        number: int,
        api: ApiKey | None,
        topic: str | None,
        client_id: str | None,
    ) -> list[ReceivedRequest]:
        """Return the requests that a broker has received, oldest first."""
        await trio.lowlevel.checkpoint()
        rule = FaultRule(action="delay", api=api, topic=topic, client_id=client_id)
        node = self._nodes[number]
        return [
            it for it in node.received if rule.matches(it.api, it.client_id, it.topics)
        ]

    async def add_fault(self, number: int, rule: FaultRule) -> int:
        """Add a fault to requests of a broker; return its number."""
        await trio.lowlevel.checkpoint()
        return self._nodes[number].faults.add(rule)

    async def remove_fault(self, number: int, fault: int | None) -> None:
        """Remove a fault of a broker, or all of them."""
        await trio.lowlevel.checkpoint()
        self._nodes[number].faults.remove(fault)

    async def hits(self, number: int, fault: int) -> int:
        """Return how many requests a fault has affected."""
        await trio.lowlevel.checkpoint()
        return self._nodes[number].faults.hits(fault)

    async def leader(self, topic: str, partition: int) -> int:
        """Return the number of the broker that leads a partition.

        :raises KafkaError: if none does.
        """
        await trio.lowlevel.checkpoint()
        for number, node in enumerate(self._nodes):
            if node in self._running():
                key = TopicPartition(topic, partition)
                held = node.broker.replicas.partitions.get(key)
                if held is not None and held.is_leader:
                    return number
        raise KafkaError(
            ErrorCode.leader_not_available, f"{topic}-{partition} has no leader"
        )

    async def start(self, number: int) -> None:
        """Start a stopped broker, on its old port."""
        node = self._nodes[number]
        if not node.is_running:
            await self._nursery.start(node.live)
            await self._settled(self._all_know_all, "every broker to know all others")

    async def stop(self, number: int) -> None:
        """Stop a broker cleanly."""
        await self._nodes[number].stop()

    async def kill(self, number: int) -> None:
        """End a broker as a crash does."""
        await self._nodes[number].kill()

    # ---- inside ---------------------------------------------------------------------

    def _node(self, keys: Mapping[str, str], folder: str = "") -> BrokerNode:
        settings = self._settings
        return BrokerNode(
            keys,
            data=None if settings.data is None else settings.data / folder,
            port=settings.port,
            clock=self._clock,
            connect=self._connect,
            wake_later=self._wake_later,
        )

    def _server_of_zookeeper(self) -> ZooKeeperServer:
        service = ZooKeeperService(
            now_ns=self._clock.now_ns,
            rng=random.Random(),
            tick_ms=_ZOOKEEPER_TICK_MS,
            start_ms=0,
        )
        return memory_zookeeper(service, self._zookeeper, _ZOOKEEPER_PORT)

    async def _connect(self, host: str, port: int) -> Stream:
        """Open a broker's connection to another broker, or to ZooKeeper."""
        if host != _ZOOKEEPER_HOST:
            return await connect_tcp(host, port)
        await trio.lowlevel.checkpoint()
        return MemoryStream(self._zookeeper.connect(port))

    def _wake_later(self, seconds: float, wake: Wake) -> None:
        async def wait() -> None:
            await trio.sleep(seconds)
            wake()

        self._nursery.start_soon(wait)

    def _running(self) -> list[BrokerNode]:
        return [node for node in self._nodes if node.is_running]

    def _serving(self) -> list[BrokerNode]:
        """Return the brokers that run; raise `RuntimeError` if none does."""
        found = self._running()
        if not found:
            raise RuntimeError("no broker is running; start() starts one")
        return found

    async def _settled(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until ``condition`` holds.

        :raises TimeoutError: if it does not hold in time.
        """
        ends_s = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > ends_s:
                raise TimeoutError(f"waited {_PATIENCE_S:g} s for {what}")
            await trio.sleep(_LOOK_S)

    def _all_know_all(self) -> bool:
        running = self._running()
        return all(
            len(node.broker.metadata_cache.brokers) >= len(running)
            and node.broker.metadata_cache.controller_id >= 0
            for node in running
        )

    def _nothing_is_due(self) -> bool:
        now_ns = self._clock.now_ns()
        due_ns = [
            at_ns
            for node in self._running()
            for at_ns in (
                node.broker.next_expiry_ns(),
                node.broker.upkeep_duty.due_ns(),
            )
        ]
        return all(at_ns is None or at_ns > now_ns for at_ns in due_ns)

    def _is_led(self, topic: str, partitions: int) -> bool:
        """Whether all brokers know the leaders, and the leaders know their role."""
        for node in self._running():
            known = node.broker.metadata_cache.topic(topic)
            if known is None or len(known.partitions) < partitions:
                return False
            if any(state.leader < 0 for state in known.partitions.values()):
                return False
        return sum(1 for _ in self._led(topic)) == partitions

    def _led(self, topic: str) -> Iterator[Partition]:
        """Yield the partitions of a topic at their leaders."""
        for node in self._serving():
            for key, partition in node.broker.replicas.partitions.items():
                if key[0] == topic and partition.is_leader:
                    yield partition

    def _records(
        self, topic: str, number: int | None, *, must_exist: bool
    ) -> list[ConsumerRecord]:
        led = {
            partition.key.partition: partition
            for partition in self._led(topic)
            if number in (None, partition.key.partition)
        }
        if must_exist and not led:
            known = {
                it.name
                for node in self._running()
                for it in node.broker.metadata_cache.topics()
            }
            sought = topic if number is None else TopicPartition(topic, number)
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"{sought}: not among the topics ({', '.join(sorted(known))})",
            )
        return [record for it in sorted(led) for record in _stored(led[it])]


def _stored(partition: Partition) -> Iterator[ConsumerRecord]:
    """Yield the records of a partition that a consumer can read."""
    start = offset = partition.log.log_start_offset
    while True:
        part = partition.read(offset, _READ_BYTES, is_follower=False, min_one=True)
        if part is None:
            return
        batches = FetchedBatches(partition.key, part.read(), aborted=None)
        while (batch := batches.next_batch()) is not None:
            yield from (it for it in batch[0] if it.offset >= start)
        assert batches.next_offset is not None, partition
        offset = batches.next_offset


async def _send_request(
    node: BrokerNode, request: RequestMessage[R], version: int
) -> R:
    """Send one request to a broker, and return the answer."""
    frame = encode_request(request.api_key, version, 1, OWN_CLIENT_ID, request)
    received = b""
    stream = await node.own_connect(HOST, node.port)
    try:
        await stream.send_all(frame)
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
            chunk = await stream.receive_some()
            if not chunk:
                raise ConnectionResetError(f"the broker at {HOST}:{node.port} hung up")
            received += chunk
    finally:
        await stream.aclose()
    answer: R = decode_response(request.api_key, version, received[4:])[1]
    return answer
