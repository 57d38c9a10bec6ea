"""A ZooKeeper server on any transport; cancellation acts like a kill.

The service outlives the server: after a restart the tree and the sessions still exist.

With a journal, a frame leaves only after all earlier transactions are on disk. This
includes responses to reads, which may show writes not yet on disk. One task writes and
syncs; requests that arrive during a sync share the next one.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

import trio

from broker.client.signals import Changes, Signal
from broker.protocol.errors import MalformedFrame
from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.in_memory.zookeeper_journal import Journal
from broker.zookeeper.jute import REQUEST_BYTES_MAX, Frames

_CONNECTIONS_MAX: Final = 1000
_CONNECT_S: Final = 10.0
_FAREWELL_S: Final = 5.0
# A client with more unsent bytes is not read until it has received some.
_UNSENT_BYTES_MAX: Final = 4 << 20
# Health check commands and their responses.
_COMMANDS: Final = {
    b"ruok": b"imok",
    b"srvr": b"Zookeeper version: in memory\nMode: standalone\n",
}


# Runs a function that waits for a disk.
CallDisk: TypeAlias = "Callable[[Callable[[], None]], Awaitable[None]]"


class ClientConnection(Protocol):
    """A client's connection; sending and receiving raise `trio.BrokenResourceError`."""

    async def send_all(self, data: bytes) -> None:
        """Send all of ``data``."""

    async def receive_some(self) -> bytes:
        """Receive some bytes; none at the end of the client's stream."""

    def close(self) -> None:
        """Close the connection; the client receives the sent bytes."""

    def abort(self) -> None:
        """Reset the connection; bytes not yet received are lost."""


class Listener(Protocol):
    """A port that accepts client connections."""

    async def accept(self) -> ClientConnection:
        """Wait for a connection."""

    def close(self) -> None:
        """Free the port."""


class ZooKeeperServer:
    """A server of a service; each request takes ``request_s``.

    Each `run` calls ``listen``. ``call`` runs a function that waits for the disk, by
    default on the event loop.
    """

    def __init__(
        self,
        service: ZooKeeperService,
        listen: Callable[[], Listener],
        *,
        request_s: float = 0.0,
        call: CallDisk | None = None,
    ) -> None:
        self._disk = (
            None if service.journal is None else _Disk(service, service.journal, call)
        )
        self._connections = 0
        self._request_s = request_s
        self._service = service
        self._listen = listen

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; then reset all connections, like a killed process."""
        listener = self._listen()
        self._service.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._expire_sessions)
                if self._disk is not None:
                    nursery.start_soon(self._disk.run)
                task_status.started()
                while True:
                    connection = await listener.accept()
                    if self._connections < _CONNECTIONS_MAX:
                        self._connections += 1
                        nursery.start_soon(self._serve, connection)
                    else:
                        connection.abort()
                        connection.close()
        finally:
            self._service.stopped()
            listener.close()

    async def _expire_sessions(self) -> None:
        while True:
            await trio.sleep(self._service.until_tick_ns() / 1e9)
            self._service.expire()
            if self._disk is not None:
                # Make the expiry durable, even if no response waits for it.
                self._disk.has_work()

    async def _serve(self, connection: ClientConnection) -> None:
        peer = _Peer(connection, self._disk)
        try:
            async with trio.open_nursery() as nursery:
                peer.scope = nursery.cancel_scope
                nursery.start_soon(peer.write_all)
                nursery.start_soon(self._read_all, peer)
        finally:
            self._connections -= 1
            self._service.disconnect(peer)
            if not peer.is_complete:
                connection.abort()
            connection.close()

    async def _read_all(self, peer: _Peer) -> None:
        frames = Frames(REQUEST_BYTES_MAX)
        take = self._service.connect
        try:
            with trio.move_on_after(_CONNECT_S) as waiting:
                while chunk := await peer.connection.receive_some():
                    if answer := _COMMANDS.get(chunk[:4]):
                        peer.send(answer)
                        peer.hang_up()
                        return
                    frames.receive(chunk)
                    while (frame := frames.next()) is not None:
                        if self._request_s:
                            await trio.sleep(self._request_s)
                        take(peer, frame)
                        take = self._service.take
                        waiting.deadline = math.inf
                        await peer.room()
        except (trio.BrokenResourceError, MalformedFrame):
            # A disconnected client, or a malformed request, gets no response.
            pass
        peer.scope.cancel()


class _Peer:
    """A client, and the frames queued for it."""

    def __init__(self, connection: ClientConnection, disk: _Disk | None) -> None:
        self.connection = connection
        self.scope = trio.CancelScope()
        self.is_complete = False
        self._disk = disk
        self._frames: list[bytes] = []
        self._unsent_bytes = 0
        self._last = False
        self._written = Signal()
        self._sent = Changes()

    def send(self, frame: bytes) -> None:
        """Send a frame after those already queued."""
        self._frames.append(frame)
        self._unsent_bytes += len(frame)
        self._written.notify()

    def hang_up(self) -> None:
        """Send the queued frames, within a time limit, and close the connection."""
        self._last = True
        self.scope.deadline = trio.current_time() + _FAREWELL_S
        self._written.notify()

    async def room(self) -> None:
        """Wait while too many bytes are unsent."""
        while self._unsent_bytes > _UNSENT_BYTES_MAX:
            await self._sent.next()

    async def write_all(self) -> None:
        """Send frames until the last one is sent."""
        try:
            while not self.is_complete:
                await self._written.wait()
                frames, self._frames = self._frames, []
                if self._disk is not None:
                    await self._disk.sync()
                sent = b"".join(frames)
                await self.connection.send_all(sent)
                self._unsent_bytes -= len(sent)
                self._sent.notify()
                self.is_complete = self._last and not self._frames
        except trio.BrokenResourceError:
            # The client disconnected; the remaining frames are lost.
            pass
        self.scope.cancel()


class _Disk:
    """The task that writes a journal, and the tasks that wait for it."""

    def __init__(
        self,
        service: ZooKeeperService,
        journal: Journal,
        call: CallDisk | None,
    ) -> None:
        self._service = service
        self._journal = journal
        self._call = call
        self._work = Signal()
        self._synced = Changes()

    def has_work(self) -> None:
        """Wake the task that writes appended records."""
        self._work.notify()

    async def sync(self) -> None:
        """Wait until all records appended so far are on disk."""
        appended = self._journal.appended
        while self._journal.synced < appended:
            self._work.notify()
            await self._synced.next()

    async def run(self) -> None:
        """Write and sync appended records; replace a long log by a snapshot."""
        journal = self._journal
        while True:
            await self._work.wait()
            if journal.synced == journal.appended:
                continue
            written = journal.write()
            if self._call is None:
                journal.sync()
            else:
                await self._call(journal.sync)
            journal.synced = written
            if journal.is_long:
                journal.replace(self._service.tree.zxid, self._service.packed())
            self._synced.notify()
