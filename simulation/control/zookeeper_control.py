"""A simulated cluster under ZooKeeper: one of its brokers is the controller.

ZooKeeper's server is in memory and speaks its protocol. Decisions are read directly
from its tree, without the network; requests go through the brokers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import trio

from broker.assembly import assemble
from broker.config import BrokerConfig
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import read_controller
from broker.coordination.zookeeper.layout.topic_records import (
    read_leadership,
    read_topic,
)
from broker.node.broker import Broker
from broker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from broker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from broker.protocol.messages.message import AnyRequest, AnyResponse
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode_response, encode_request
from broker.zookeeper.in_memory.service import ZooKeeperService
from simulation.addresses import CLIENTS, port_of
from simulation.cluster import Parts
from simulation.virtual_time.apis import START_MS, receive_frame
from simulation.virtual_time.determinism import VirtualClock
from simulation.virtual_time.memory_zookeeper import memory_zookeeper
from simulation.virtual_time.network_faults import HostNetwork

# Address of the server in memory.
HOST: Final = "127.0.0.1"
PORT: Final = 2181
_TIMEOUT: Final = timedelta(seconds=5)
_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]


class ZooKeeperControl:
    """ZooKeeper, and an operator's requests to the controller."""

    def __init__(
        self,
        network: HostNetwork,
        clock: VirtualClock,
        rng: random.Random,
        *,
        session_timeout_ms: int,
    ) -> None:
        self.host = HOST
        self._session_timeout_ms = session_timeout_ms
        self._service = ZooKeeperService(
            now_ns=clock.now_ns,
            rng=rng,
            tick_ms=min(500, session_timeout_ms // 2),
            start_ms=START_MS,
        )
        self._host = network.host("clients")
        self._server = memory_zookeeper(self._service, network, PORT)
        self._scope = trio.CancelScope()
        self._back_s = 0.0
        self._topics: dict[str, int] = {}

    def settings(self, broker: int) -> Mapping[str, str]:
        """Return the address of ZooKeeper."""
        return {
            "zookeeper.connect": f"{HOST}:{PORT}",
            "zookeeper.session.timeout.ms": str(self._session_timeout_ms),
        }

    def make(self, broker: int, config: BrokerConfig, parts: Parts) -> Broker:
        """Return a new broker of the cluster."""
        return assemble(
            config,
            storage=parts.storage,
            now_ns=parts.now_ns,
            now_ms=parts.now_ms,
            rng=parts.rng,
            blocking=parts.blocking,
            connect=parts.connect,
        )

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve ZooKeeper until cancelled; it starts again after each stop."""
        while True:
            with trio.CancelScope() as self._scope:
                await self._server.run(task_status)
            task_status = trio.TASK_STATUS_IGNORED
            await trio.sleep_until(self._back_s)

    # ---- decisions ------------------------------------------------------------------

    def live(self) -> AbstractSet[int]:
        """Return the registered brokers."""
        tree = self._service.tree
        if tree.stat(paths.BROKER_IDS) is None:
            return frozenset()
        return {int(name) for name in tree.children(paths.BROKER_IDS)}

    def standings(self) -> Mapping[TopicPartition, _Standing]:
        """Return the state of each partition that has a state znode."""
        found = {}
        for name, count in self._topics.items():
            assignment = read_topic(self._service.tree.get(paths.topic(name))[0])
            for index in range(count):
                key = TopicPartition(name, index)
                if self._service.tree.stat(paths.partition_state(key)) is not None:
                    data, stat = self._service.tree.get(paths.partition_state(key))
                    state = read_leadership(data, stat.version)
                    found[key] = _Standing(
                        replicas=assignment.partitions[index].replicas,
                        leader=state.leader,
                        isr=state.isr,
                    )
        return found

    # ---- requests -------------------------------------------------------------------

    async def create(
        self,
        name: str,
        assignment: Sequence[tuple[int, ...]],
        configs: Mapping[str, str],
    ) -> None:
        """Create a topic, and wait until it has leaders."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                for index, replicas in enumerate(assignment)
            ],
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout=_TIMEOUT)
        keys = {TopicPartition(name, index) for index in range(len(assignment))}
        with trio.fail_after(_PATIENCE_S):
            # The controller may not know all registered brokers yet.
            while self._service.tree.stat(paths.topic(name)) is None:
                await self._call(request, 5)
                await trio.sleep(_PAUSE_S)
            self._topics[name] = len(assignment)
            # Only the znodes show it, and nothing signals their change.
            while not keys <= self.standings().keys():  # noqa: ASYNC110 see above
                await trio.sleep(_PAUSE_S)

    async def prefer(self, key: TopicPartition) -> None:
        """Request a preferred election from the controller, which may refuse it."""
        wanted = TopicPartitions(topic=key.topic, partitions=(key.partition,))
        request = ElectLeadersRequest(topic_partitions=[wanted], timeout=_TIMEOUT)
        with suppress(OSError, EOFError, trio.BrokenResourceError):
            with trio.move_on_after(_TIMEOUT.total_seconds()):
                await self._call(request, 2)

    async def _call(self, request: AnyRequest[AnyResponse], version: int) -> None:
        """Send a request to the controller, if there is one, and await the answer."""
        key, tree = request.api_key, self._service.tree
        if tree.stat(paths.CONTROLLER) is None:
            return
        controller = read_controller(tree.get(paths.CONTROLLER)[0])
        stream = await self._host.connect(
            f"broker-{controller}", port_of(controller, CLIENTS)
        )
        await stream.send_all(encode_request(key, version, 1, "operator", request))
        decode_response(key, version, await receive_frame(stream))
        await stream.aclose()

    async def fail_over(self, until_s: float) -> None:
        """Kill ZooKeeper's server until an instant, which stops all decisions."""
        await trio.lowlevel.checkpoint()
        self._back_s = until_s
        self._scope.cancel()
