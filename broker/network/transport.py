"""The network layer's interface to an operating system: four small protocols.

`Connection` is a subset of a non-blocking ``socket.socket``, so a real socket needs no
wrapper on the hot path. ``simulation.virtual_time.memory_network`` implements it with
bounded buffers in memory, for virtual time. `Selector` reports connections that have
become readable or writable, `ListeningSocket` accepts connections, and `Network`
creates both.

Readiness is *edge-triggered*: an event is reported once, and the channel remembers it
until an operation would block. A connection is therefore registered only once. Muting a
connection, or waiting until it is writable again, costs no system call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from broker.protocol.buffer import FileRegion

# The bits of epoll(7), which the in-memory selector also uses.
READABLE: Final = 0x001
WRITABLE: Final = 0x004
BROKEN: Final = 0x008 | 0x010
PEER_FINISHED: Final = 0x2000

Bytes: TypeAlias = "bytes | memoryview"
# Linux' IOV_MAX, the largest number of pieces of one sendmsg(2).
PIECES_MAX: Final = 1024
# Largest number of connections served or closed in one round of a processor.
READY_MAX: Final = 256


class Connection(Protocol):
    """A connected stream that never blocks.

    ``recv``, ``recv_into`` and ``send`` raise `BlockingIOError` if they would block,
    and another `OSError` once the connection is broken. ``recv`` returns ``b""`` when
    the peer has finished sending.
    """

    def fileno(self) -> int:
        """Return a number that is unique among the open connections of its network."""

    def recv(self, size: int, /) -> bytes:
        """Return some of the received bytes."""

    def recv_into(self, buffer: memoryview, size: int = 0, /) -> int:
        """Put some of the received bytes into ``buffer``; return their number."""

    def send(self, data: Bytes, /) -> int:
        """Take some of ``data``; return the number of bytes."""

    def close(self) -> None:
        """Close the connection; bytes already taken are still delivered."""


class Selector(Protocol):
    """The connections of one processor, and which of them are ready."""

    def register(self, connection: Connection) -> None:
        """Report on the connection from now on, beginning with its present state."""

    def unregister(self, connection: Connection) -> None:
        """Stop reporting on the connection; called before the connection is closed."""

    def poll(self) -> Sequence[tuple[int, int]]:
        """Return ``(fileno, event bits)`` of ready connections, without waiting.

        At most `READY_MAX` are returned; others stay ready. These connections no longer
        wake a task in ``wait``, but a ``wakeup`` does.
        """

    async def wait(self) -> None:
        """Wait until a connection is ready or ``wakeup`` is called."""

    def wakeup(self) -> None:
        """End the present ``wait`` at once, or the next one if there is none."""

    def send_many(
        self, connection: Connection, pieces: Sequence[Bytes], more: bool
    ) -> int:
        """Send some of several pieces at once, as ``Connection.send`` does.

        There are at most `PIECES_MAX` pieces. ``more``: further bytes follow at once,
        so a short packet can wait.
        """

    def send_file(
        self, connection: Connection, region: FileRegion, skip: int, size: int
    ) -> int:
        """Send some of ``size`` bytes of a file, ``skip`` bytes after its position.

        Returns 0 if the file has become shorter than its region.
        """

    def close(self) -> None:
        """Close the selector; its connections are closed by their owner."""


class ListeningSocket(Protocol):
    """A bound address that accepts connections."""

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
