"""The brokers of a run as seen by its clients and its operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import trio

from broker.client.connection import Stream
from experiments.cluster.broker_connection import BrokerConnection
from experiments.processes.children import CpuTime

_NS = 1_000_000_000
# Exceptions of a transport whose other side is unreachable or gone.
LOST = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class Address(NamedTuple):
    """The address of a listener."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker: its number, and where clients reach it."""

    number: int
    data: Address


class Connect(Protocol):
    """Opens a stream to an address; raises `OSError`."""

    async def __call__(self, host: str, port: int, /) -> Stream:
        """Connect."""


class BrokerFaults(Protocol):
    """Faults of brokers from outside, as far as a world supports them."""

    async def stop(self, number: int) -> None:
        """Stop a broker cleanly, and wait until it has stopped."""

    async def kill(self, number: int) -> None:
        """Kill a broker; its files remain."""

    async def restart(self, number: int) -> None:
        """Start an ended broker on its files; wait until it listens."""

    async def cut(self, one: int, other: int, *, apart: bool) -> None:
        """Cut the connection between two brokers, or restore it."""

    async def slow(self, number: int, factor: float) -> None:
        """Multiply the cost of a broker's requests by ``factor`` from now on."""

    async def fill(self, number: int, *, full: bool) -> None:
        """Fill a broker's disk, or free it again."""

    def cpu_time(self, number: int) -> CpuTime:
        """Return a broker's CPU time, which requires that it was never restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUnderTest:
    """All brokers by number, the connections to them, and the clock of all stamps.

    ``controller`` is an additional broker without replicas; ``zookeeper`` is the
    connect string of all of them. ``timestamp_ms`` returns the wall-clock time for
    producers' records. ``zookeeper_ns`` converts milliseconds of ZooKeeper's clock to
    an instant of the clock.
    """

    nodes: tuple[Node, ...]
    controller: Node
    zookeeper: str
    faults: BrokerFaults
    connect: Connect
    now_ns: Callable[[], int]
    timestamp_ms: int
    zookeeper_ns: Callable[[int], int]

    async def wire(self, address: Address) -> BrokerConnection:
        """Return a new connection."""
        return BrokerConnection(await self.connect(*address))

    async def until(self, instant_ns: int) -> None:
        """Sleep until an instant of the clock."""
        left_ns = instant_ns - self.now_ns()
        if left_ns > 0:
            await trio.sleep(left_ns / _NS)
