"""ZooKeeper in virtual time, with failing servers and connections."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import trio
import trio.testing

from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.znodes import Event
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.memory_network import MemoryNetwork, MemoryStream
from simulation.virtual_time.memory_zookeeper import memory_zookeeper

TIMEOUT_MS = 6000


class Zoo:
    """Servers at ports with one service behind them, and connections to them."""

    def __init__(self, clock: VirtualClock, nursery: trio.Nursery, seed: int) -> None:
        self.clock = clock
        self.nursery = nursery
        self.rng = random.Random(seed)
        self.network = MemoryNetwork(
            now_ns=clock.now_ns,
            rng=random.Random(self.rng.random()),
            latency_ns=(20_000, 400_000),
        )
        self.service = ZooKeeperService(
            now_ns=clock.now_ns, rng=random.Random(self.rng.random()), start_ms=0
        )
        self.streams: list[MemoryStream] = []
        # Time and port of each connection attempt.
        self.attempts: list[tuple[float, int]] = []
        # Ports that refuse clients.
        self.unreachable: set[int] = set()
        self._servers: dict[int, trio.CancelScope] = {}

    async def start(self, port: int) -> None:
        """Start a server."""
        scope = self._servers[port] = trio.CancelScope()

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            with scope:
                server = memory_zookeeper(self.service, self.network, port)
                await server.run(task_status)

        await self.nursery.start(serve)

    async def stop(self, port: int) -> None:
        """Kill a server."""
        self._servers.pop(port).cancel()
        await trio.testing.wait_all_tasks_blocked()

    async def connect(self, host: str, port: int) -> MemoryStream:
        """Connect as a client does."""
        await trio.lowlevel.checkpoint()
        self.attempts.append((trio.current_time(), port))
        if port in self.unreachable:
            raise ConnectionRefusedError(111, f"{port} is out of reach")
        stream = MemoryStream(self.network.connect(port))
        self.streams.append(stream)
        return stream

    def cut_all(self) -> None:
        """Break all connections."""
        for stream in self.streams:
            self.network.cut(stream.connection)
        self.streams.clear()

    def session(self, servers: str) -> ZooKeeperSession:
        """Return a session that is not running yet."""
        return ZooKeeperSession(
            servers,
            timeout_ms=TIMEOUT_MS,
            connect=self.connect,
            rng=random.Random(self.rng.random()),
        )

    async def opened(self, servers: str) -> ZooKeeperSession:
        """Return a running session."""
        session = self.session(servers)
        await self.nursery.start(session.run)
        return session


def with_zoo(scenario: Callable[[Zoo], Awaitable[None]], *, seed: int = 1) -> None:
    """Run a scenario in virtual time; a server listens at 2181."""

    async def main(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            zoo = Zoo(clock, nursery, seed)
            await nursery.start(zoo.network.run)
            await zoo.start(2181)
            await scenario(zoo)
            nursery.cancel_scope.cancel()

    run_virtual(main, seed=seed)


def heard(session: ZooKeeperSession) -> list[Event]:
    """Return the events received so far."""
    events: list[Event] = []
    try:
        while True:
            events.append(session.events.receive_nowait())
    except (trio.WouldBlock, trio.EndOfChannel):
        return events
