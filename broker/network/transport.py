"""The network layer's interface to an operating system: four small protocols.

`Connection` is the part of a non-blocking ``socket.socket`` that is used, so that a
real socket needs no wrapper on the hot path;
``simulation.virtual_time.memory_network`` has another one, of bounded buffers in
memory, for virtual time. `Selector` reports connections that have become readable or
writable, `ListeningSocket` takes connections, and `Network` makes both.

Readiness is *edge-triggered*: an event is reported once, and the channel remembers it
until an operation says that it would block. A connection is therefore registered once
in its life: muting it, and waiting until it is writable again, cost no system call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from broker.protocol.buffer import FileRegion

# The bits of epoll(7), which the in-memory selector uses too.
READABLE: Final = 0x001
WRITABLE: Final = 0x004
BROKEN: Final = 0x008 | 0x010
PEER_FINISHED: Final = 0x2000

Bytes: TypeAlias = "bytes | memoryview"
# Linux' IOV_MAX: what one sendmsg(2) takes.
PIECES_MAX: Final = 1024
# Connections that are served, or closed, in one round of a processor.
READY_MAX: Final = 256


class Connection(Protocol):
    """A connected stream that never blocks.

    ``recv``, ``recv_into`` and ``send`` raise `BlockingIOError` if they would block,
    and another `OSError` once the connection is broken; ``recv`` returns ``b""`` when
    the peer has finished sending.
    """

    def fileno(self) -> int:
        """Return a number that no other open connection of its network has."""

    def recv(self, size: int, /) -> bytes:
        """Return some of the received bytes."""

    def recv_into(self, buffer: memoryview, size: int = 0, /) -> int:
        """Put some of the received bytes into ``buffer``; return their number."""

    def send(self, data: Bytes, /) -> int:
        """Take some of ``data``; return how many bytes."""

    def close(self) -> None:
        """Close the connection; bytes already taken are still delivered."""


class Selector(Protocol):
    """The connections of one processor, and which of them are ready."""

    def register(self, connection: Connection) -> None:
        """Report on the connection from now on, beginning with its present state."""

    def unregister(self, connection: Connection) -> None:
        """Report no more; to be called before the connection is closed."""

    def poll(self) -> Sequence[tuple[int, int]]:
        """Return ``(fileno, event bits)`` of ready connections, without waiting.

        They are at most `READY_MAX`; others stay ready.
        A task in ``wait`` need not be woken for these any more, but for a ``wakeup``.
        """

    async def wait(self) -> None:
        """Wait until ``poll`` has something to report or ``wakeup`` is called."""

    def wakeup(self) -> None:
        """End the present ``wait``, or else the next one, at once."""

    def send_many(
        self, connection: Connection, pieces: Sequence[Bytes], more: bool
    ) -> int:
        """Send some of several pieces at once, as ``Connection.send`` does.

        They are at most `PIECES_MAX`.

        ``more`` says that something follows at once, so a short packet can wait.
        """

    def send_file(
        self, connection: Connection, region: FileRegion, skip: int, size: int
    ) -> int:
        """Send some of ``size`` bytes of a file from ``skip`` behind its position.

        Returns 0 if the file has become shorter than its region.
        """

    def close(self) -> None:
        """Close the selector; its connections are closed by their owner."""


class ListeningSocket(Protocol):
    """A bound address that takes connections."""

    host: str
    port: int

    async def accept(self) -> tuple[Connection, str]:
        """Wait for a connection; return it and the peer's address."""

    def close(self) -> None:
        """Take no more connections."""


class Network(Protocol):
    """Factory of listening sockets and selectors."""

    def listen(self, host: str, port: int) -> ListeningSocket:
        """Bind an address; port 0 means any free one.

        :raises OSError: if the address cannot be bound.
        """

    def selector(self) -> Selector:
        """Return a new selector."""
