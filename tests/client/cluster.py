"""A whole broker in virtual time, with connections for clients that can break.

The broker is the real one, with an in-memory disk and network. Clients connect through
`Cluster.connect`. A connection can be cut after a number of bytes, in the middle of a
request or of a response.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import trio

from broker.client.consumer.consumer import open_consumer
from broker.client.producer.producer import open_producer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from simulation.virtual_time.apis import START_MS
from simulation.virtual_time.memory_network import MemoryStream
from tests.broker.apis.requests import new_topic
from tests.virtual.kafka import ask, kafka
from tests.virtual.world import World, in_world

T = TypeVar("T")
LATENCY_NS = (20_000, 400_000)
SETTINGS = {
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "10",
    "group.consumer.min.session.timeout.ms": "10",
    "group.consumer.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.heartbeat.interval.ms": "100",
}


class CutStream:
    """A stream that breaks after a number of bytes, counted over both directions."""

    def __init__(self, stream: MemoryStream, cluster: Cluster, budget: int) -> None:
        self._stream = stream
        self._cluster = cluster
        self._budget = budget

    async def send_all(self, data: bytes) -> None:
        """Send the bytes within the budget, then break."""
        allowed = data[: max(self._budget, 0)]
        self._budget -= len(data)
        await self._stream.send_all(allowed)
        if self._budget < 0:
            self._cut()
            raise trio.BrokenResourceError("cut while sending")

    async def receive_some(self) -> bytes:
        """Receive the bytes within the budget, then break."""
        chunk = await self._stream.receive_some()
        self._budget -= len(chunk)
        if chunk and self._budget < 0:
            self._cut()
            raise trio.BrokenResourceError("cut while receiving")
        return chunk

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    def _cut(self) -> None:
        self._cluster.cuts += 1
        self._cluster.world.network.cut(self._stream.connection)


class Cluster:
    """One broker of a `World` with its clients."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.cuts = 0
        self.connections: list[MemoryStream] = []
        # Draws the number of bytes after which a new connection is cut; None means
        # never.
        self.draw_budget: Callable[[], int | None] = lambda: None
        self.reachable = True

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap address for clients."""
        return f"127.0.0.1:{self.world.server.ports['PLAINTEXT']}"

    def now_ms(self) -> int:
        """Return the broker's wall-clock time."""
        return START_MS + int(self.world.clock.now_ms())

    async def connect(self, host: str, port: int) -> Any:
        """Connect as a client does."""
        await trio.lowlevel.checkpoint()
        if not self.reachable:
            raise ConnectionRefusedError(111, "out of reach")
        stream = MemoryStream(self.world.network.connect(port))
        self.connections.append(stream)
        budget = self.draw_budget()
        return stream if budget is None else CutStream(stream, self, budget)

    def cut_all(self) -> None:
        """Break all client connections."""
        for stream in self.connections:
            self.world.network.cut(stream.connection)
        self.connections.clear()

    def producer(self, **settings: Any) -> Any:
        """Open a producer."""
        return open_producer(
            self.bootstrap,
            connect=self.connect,
            rng=random.Random(self.rng.random()),
            now_ms=self.now_ms,
            **settings,
        )

    def consumer(self, **settings: Any) -> Any:
        """Open a consumer, by default at the beginning."""
        return open_consumer(
            self.bootstrap,
            connect=self.connect,
            rng=random.Random(self.rng.random()),
            **{"auto_offset_reset": "earliest", **settings},
        )

    async def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request without a client and return the response."""
        stream = self.world.connect()
        answered = await ask(stream, key, version, **fields)
        await stream.aclose()
        return answered

    async def create(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        created = await self.ask(
            ApiKey.CREATE_TOPICS,
            5,
            topics=[new_topic(topic, partitions)],
            timeout=timedelta(seconds=5),
        )
        assert created.topics[0].error_code is ErrorCode.none

    async def read_all(self, topic: str, partitions: int) -> list[list[bytes | None]]:
        """Return the values in each partition, in order."""
        values: list[list[bytes | None]] = [[] for _ in range(partitions)]
        budget, self.draw_budget = self.draw_budget, lambda: None
        async with self.consumer() as consumer:
            names = await consumer.partitions_for(topic)
            ends = await consumer.end_offsets(names)
            consumer.assign(names)
            while sum(map(len, values)) < sum(ends.values()):
                for record in await consumer.poll():
                    values[record.partition].append(record.value)
        self.draw_budget = budget
        return values


def in_cluster(
    scenario: Callable[[Cluster], Awaitable[T]],
    *,
    seed: int = 1,
    latency_ns: tuple[int, int] = LATENCY_NS,
    **settings: str,
) -> T:
    """Run ``scenario`` with a broker in virtual time; settings use underscores."""
    dotted = {key.replace("_", "."): value for key, value in settings.items()}

    async def run(world: World) -> T:
        with trio.fail_after(10_000):
            return await scenario(Cluster(world, seed))

    result: T = in_world(
        run,
        {**SETTINGS, **dotted},
        seed=seed,
        application=kafka,
        latency_ns=latency_ns,
    )
    return result
