"""A network of hosts: links can be slow, silent or cut, and hosts can go down.

Extends the memory network of virtual time. A host is the address to which a listener is
bound or from which a connection is made; each direction between two hosts is a link.

- A *silent* link delivers nothing and reports nothing, like an unplugged cable. Bytes
  sent over it wait, as TCP would retransmit them, until the link works again. New
  connections over it wait too.
- A *slow* link delivers late.
- *Cutting* breaks connections on both sides at once.
- A host that goes down cuts its connections, as the kernel does for a killed process.
  If its power fails, peers notice only when they next send.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import permutations
from typing import NamedTuple

import trio

from simulation.virtual_time.memory_network import (
    MemoryConnection,
    MemoryListener,
    MemoryNetwork,
    MemorySelector,
    MemoryStream,
)

_NS = 1_000_000_000


class Link(NamedTuple):
    """One direction between two hosts, by their names."""

    sender: str
    receiver: str


def between(some: Iterable[str], others: Iterable[str]) -> list[Link]:
    """Return the links between hosts of two groups, both directions."""
    pairs = [(one, other) for one in some for other in others if one != other]
    return [Link(*way) for pair in pairs for way in permutations(pair)]


class HostNetwork(MemoryNetwork):
    """A memory network with hosts, and with faults on the links between them."""

    def __init__(
        self,
        *,
        now_ns: Callable[[], int],
        rng: random.Random,
        latency_ns: tuple[int, int],
    ) -> None:
        super().__init__(now_ns=now_ns, rng=rng, latency_ns=latency_ns)
        # One end of each connection; closed ones are dropped from time to time.
        self._connections: list[MemoryConnection] = []
        self._down: set[str] = set()
        self._silent: set[Link] = set()
        self._slowness: dict[Link, int] = {}
        self._held: list[tuple[MemoryConnection, bytes | None]] = []
        self._restored = trio.Event()

    def host(self, name: str) -> Host:
        """Return the network interface of one host."""
        return Host(name, self)

    # ---- faults -------------------------------------------------------------------

    def silence(self, links: Iterable[Link]) -> None:
        """Deliver nothing over these links until `restore`."""
        self._silent.update(links)

    def restore(self, links: Iterable[Link]) -> None:
        """Deliver over these links again, starting with waiting chunks."""
        self._silent.difference_update(links)
        held, self._held = self._held, []
        for to, chunk in held:
            self.carry(to, chunk)
        self._restored.set()
        self._restored = trio.Event()

    def slow_down(self, links: Iterable[Link], factor: int) -> None:
        """Multiply all delays between these hosts by ``factor``; 1 is normal."""
        for link in links:
            self._slowness[link] = factor

    def cut_between(self, some: Iterable[str], others: Iterable[str]) -> int:
        """Break the connections between two groups of hosts; return how many."""
        links = set(between(some, others))
        broken = [each for each in self._in_use() if _link_to(each) in links]
        for connection in broken:
            self.cut(connection)
        return len(broken)

    def take_down(self, host: str, *, power_fails: bool = False) -> None:
        """Stop all traffic from and to a host."""
        self._down.add(host)
        # The operating system does this for a dead process.
        for listener in [it for it in self._listeners.values() if it.host == host]:
            listener.close()
        for connection in self._in_use():
            for end in (connection, connection.peer):
                if end.address == host and power_fails:
                    end.break_off()
                elif end.address == host:
                    self.cut(connection)

    def bring_up(self, host: str) -> None:
        """Connect a host again; it has no connections."""
        self._down.discard(host)

    def reaches(self, link: Link) -> bool:
        """Return whether bytes sent over a link arrive."""
        return link not in self._silent and self._down.isdisjoint(link)

    # ---- for hosts ----------------------------------------------------------------

    async def connect_from(self, host: str, there: str, port: int) -> MemoryConnection:
        """Connect to a port of another host; raises `ConnectionRefusedError`.

        Takes a round trip, and waits while a link is silent.
        """
        await trio.lowlevel.checkpoint()
        for link in (Link(host, there), Link(there, host)):
            while link in self._silent:
                await self._restored.wait()
            await trio.sleep(self._delay_ns_over(link) / _NS)
        if not self._down.isdisjoint((host, there)):
            raise ConnectionRefusedError(111, f"{host} or {there} is down")
        connection = self.connect(port, address=host)
        assert connection.peer.address == there, (connection.peer.address, there)
        self._connections.append(connection)
        return connection

    # ---- carrying -----------------------------------------------------------------

    def carry(self, to: MemoryConnection, chunk: bytes | None) -> None:
        """Send a chunk, or hold it while its link is silent."""
        link = _link_to(to)
        if link in self._silent:
            self._held.append((to, chunk))
        elif self._down.isdisjoint(link):
            super().carry(to, chunk)

    def cut(self, connection: MemoryConnection) -> None:
        """Break a connection for both sides; bytes in flight or held are lost."""
        ends = (connection, connection.peer)
        self._held = [item for item in self._held if item[0] not in ends]
        super().cut(connection)

    def delay_ns(self, to: MemoryConnection) -> int:
        """Draw the travel time of a chunk over its link."""
        return self._delay_ns_over(_link_to(to))

    def _delay_ns_over(self, link: Link) -> int:
        low, high = self._latency_ns
        return self._rng.randint(low, high) * self._slowness.get(link, 1)

    def _in_use(self) -> list[MemoryConnection]:
        self._connections = [
            each
            for each in self._connections
            if not (each.is_over and each.peer.is_over)
        ]
        return self._connections


class Host:
    """One host: where its servers listen, and from where its clients connect."""

    def __init__(self, name: str, network: HostNetwork) -> None:
        self.name = name
        self._network = network

    def listen(self, host: str, port: int) -> MemoryListener:
        """Bind a port of this host."""
        assert host == self.name, (host, self.name)
        return self._network.listen(host, port)

    def selector(self) -> MemorySelector:
        """Return a new selector."""
        return self._network.selector()

    async def connect(self, host: str, port: int) -> MemoryStream:
        """Connect to a port of another host; raises `OSError`."""
        return MemoryStream(await self._network.connect_from(self.name, host, port))


def _link_to(end: MemoryConnection) -> Link:
    """Return the link over which bytes reach this end of a connection."""
    return Link(end.peer.address, end.address)
