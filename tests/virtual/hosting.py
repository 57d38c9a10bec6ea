"""Brokers on one memory network in virtual time, for tests of whole brokers.

Also the bare network for smaller tests, and a reader of frames from a stream.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import trio

from broker.application import Application
from broker.config import BrokerConfig
from broker.server import BrokerEnvironment, BrokerServer
from simulation.virtual_time.determinism import CostPerClass, VirtualClock, spender
from simulation.virtual_time.memory_network import MemoryNetwork, MemoryStream

SLICE_NS = 50_000


def trio_ns() -> int:
    """Return the time of Trio's clock."""
    return round(trio.current_time() * 1e9)


class MemoryWire:
    """A network in memory, on which a test opens and resets connections."""

    def __init__(
        self,
        now_ns: Callable[[], int] = trio_ns,
        rng: random.Random | None = None,
        **settings: Any,
    ) -> None:
        self.now_ns = now_ns
        self.rng = rng or random.Random(1)
        self.network = MemoryNetwork(now_ns=now_ns, rng=self.rng, **settings)

    def open(self, port: int, address: str = "127.0.0.1") -> MemoryStream:
        """Open a connection to a port."""
        return MemoryStream(self.network.connect(port, address=address))

    async def dial(self, port: int, address: str = "127.0.0.1") -> MemoryStream:
        """Open a connection, with the signature of asynchronous connectors."""
        return self.open(port, address)

    async def reset(self, stream: MemoryStream) -> None:
        """Reset a connection."""
        self.network.cut(stream.connection)


class Hosting(MemoryWire):
    """Brokers served on one memory network with one virtual clock."""

    def __init__(
        self,
        clock: VirtualClock,
        seed: int,
        latency_ns: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(clock.now_ns, random.Random(seed), latency_ns=latency_ns)
        self.clock = clock
        self.servers: list[BrokerServer] = []

    def add(
        self,
        config: BrokerConfig,
        application: Application,
        *,
        seed: int,
        slices_ns: Mapping[str, int] | None = None,
        recorder: Any = None,
    ) -> BrokerServer:
        """Make a server; slices take their class's cost or ``SLICE_NS``."""
        costs = CostPerClass(by_class=slices_ns or {}, default_ns=SLICE_NS)
        server = BrokerServer(
            config,
            application,
            BrokerEnvironment(
                network=self.network,
                now_ns=self.clock.now_ns,
                rng=random.Random(seed),
                spend=spender(self.clock, costs),
                recorder=recorder,
            ),
        )
        self.servers.append(server)
        return server

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[trio.Nursery]:
        """Serve until the body ends, then cancel the nursery."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.network.run)
            for server in self.servers:
                await nursery.start(server.run)
            yield nursery
            nursery.cancel_scope.cancel()


class Stream(Protocol):
    """A stream, of a memory network or of a real one."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """Receive some bytes, or none at the end."""


class Frames:
    """Reader of frames from a stream; ``rest`` holds bytes of the next frame."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.rest = b""

    async def next(self) -> bytes | None:
        """Return the next frame without its size, or None at the end."""
        while True:
            if len(self.rest) >= 4:
                end = 4 + struct.unpack_from(">i", self.rest)[0]
                if len(self.rest) >= end:
                    frame, self.rest = self.rest[4:end], self.rest[end:]
                    return frame
            chunk = await self._stream.receive_some(65_536)
            if not chunk:
                return None
            self.rest += chunk


def frame(
    body: bytes = b"",
    *,
    correlation_id: int = 1,
    api_key: int = 3,
    version: int = 1,
    client: bytes = b"test",
) -> bytes:
    """Return a hand-encoded request with its size and header v1; default METADATA.

    The header is API key, version, correlation id and client id.
    """
    header = struct.pack(">hhih", api_key, version, correlation_id, len(client))
    content = header + client + body
    return struct.pack(">i", len(content)) + content
