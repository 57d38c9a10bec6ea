"""What the network layer needs of an operating system: four small protocols.

`Connection` is the part of a non-blocking ``socket.socket`` that is used, so that a
real socket needs no wrapper on the hot path;
``experiments.worlds.virtual.memory_network`` has another one, of bounded buffers in
memory, for virtual time. `Selector` tells which connections have become readable or
writable, `ListeningSocket` takes connections, and `Network` makes both.

Readiness is *edge-triggered*: an event is reported once, and the channel remembers it
until an operation says that it would block. So a connection is registered once in its
life: muting one, and waiting until one is writable again, cost no system call.
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


class Connection(Protocol):
    """A connected stream that never blocks.

    ``recv``, ``recv_into`` and ``send`` raise `BlockingIOError` if they would block,
    and another `OSError` once the connection is broken; ``recv`` returns ``b""`` when
    the peer has finished sending.
    """

    def fileno(self) -> int:
        """Return a number that no other open connection of its network has."""

    def recv(self, size: int, /) -> bytes:
        """Return some of what has come in."""

    def recv_into(self, buffer: memoryview, size: int = 0, /) -> int:
        """Put some of what has come in into ``buffer``; return how many bytes."""

    def send(self, data: Bytes, /) -> int:
        """Take some of ``data``; return how many bytes."""

    def close(self) -> None:
        """Let go of the connection; what was taken is still delivered."""


class Selector(Protocol):
    """The connections of one processor, and which of them are ready."""

    def register(self, connection: Connection) -> None:
        """Report on the connection from now on, beginning with what it is already."""

    def unregister(self, connection: Connection) -> None:
        """Report no more; to be called before the connection is closed."""

    def poll(self) -> Sequence[tuple[int, int]]:
        """Return ``(fileno, event bits)`` of what is ready, without waiting.

        Whoever is in ``wait`` need not hear of that any more, but of a ``wakeup``.
        """

    async def wait(self) -> None:
        """Wait until ``poll`` has something to report or somebody calls ``wakeup``."""

    def wakeup(self) -> None:
        """Let the present ``wait``, or else the next one, return at once."""

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
        """Let go of the selector; its connections are closed by their owner."""


class ListeningSocket(Protocol):
    """A bound address that takes connections."""

    host: str
    port: int

    async def accept(self) -> tuple[Connection, str]:
        """Wait for a connection; return it and the peer's address."""

    def close(self) -> None:
        """Take no more connections."""


class Network(Protocol):
    """Where listeners are bound and selectors come from."""

    def listen(self, host: str, port: int) -> ListeningSocket:
        """Bind an address; port 0 means any free one.

        :raises OSError: if the address cannot be bound.
        """

    def selector(self) -> Selector:
        """Return a new selector."""
