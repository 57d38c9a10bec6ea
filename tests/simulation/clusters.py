"""Small simulated clusters for tests, with a scripted controller."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC
from broker.cluster.partition import Partition
from broker.protocol.topic_partition import TopicPartition
from simulation.clients.client_context import ClientContext
from simulation.cluster import LATENCY_NS, Cluster
from simulation.control.scripted_controller import ScriptedController
from simulation.histories import History
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.network_faults import HostNetwork

T = TypeVar("T")
KEY = TopicPartition("t", 0)


class World:
    """A cluster with the topic t of one partition, replicated everywhere."""

    def __init__(
        self, clock: VirtualClock, count: int, settings: dict[str, str]
    ) -> None:
        self.clock = clock
        self.network = HostNetwork(
            now_ns=clock.now_ns, rng=random.Random(1), latency_ns=LATENCY_NS
        )
        self.control = ScriptedController(
            self.network, random.Random(2), session_timeout_s=1.0, repeats=0.0
        )
        self.cluster = Cluster(
            clock,
            random.Random(3),
            count=count,
            control=self.control,
            network=self.network,
            settings={"offsets.topic.num.partitions": "1", **settings},
        )
        self.history = History()

    async def begin(self) -> None:
        """Start all brokers and create the topics."""
        count = len(self.cluster.brokers)
        for number in range(count):
            await self.cluster.start(number)
        await self.until(lambda: len(self.control.elections.live) == count)
        for name in ("t", GROUP_METADATA_TOPIC):
            await self.control.create(name, [tuple(range(count))], {})
        await trio.sleep(1)

    def context(self) -> ClientContext:
        """Return the context of clients of this cluster."""
        host = self.network.host("client")
        return ClientContext(host, self.cluster.bootstrap, self.clock, self.history)

    def replica(self, broker: int) -> Partition:
        """Return a broker's replica of the partition."""
        return self.cluster.brokers[broker].broker.replicas.partitions[KEY]

    def leader(self) -> int:
        """Return the partition's leader in the controller's state."""
        return self.control.elections.states[KEY].leader

    async def until(self, condition: Callable[[], bool], within_s: float = 30) -> None:
        """Wait until a condition is true."""
        with trio.fail_after(within_s):
            # No event signals every awaited change; polling is free in virtual time.
            while not condition():  # noqa: ASYNC110 see above
                await trio.sleep(0.01)


def in_world(
    scenario: Callable[[World], Awaitable[T]], *, count: int = 3, **settings: str
) -> T:
    """Run ``scenario`` beside a cluster; settings with underscores."""
    dotted = {key.replace("_", "."): value for key, value in settings.items()}

    async def main(clock: VirtualClock) -> T:
        world = World(clock, count, dotted)
        async with trio.open_nursery() as nursery:
            await nursery.start(world.cluster.run)
            with trio.fail_after(1000):
                await world.begin()
                result = await scenario(world)
            nursery.cancel_scope.cancel()
        return result

    return run_virtual(main, seed=1)
