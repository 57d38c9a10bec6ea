"""A ZooKeeper server on any transport; cancelled, it is killed.

Its service outlives it: run it again, and its tree is there, and its sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from broker.client.signals import Signal
from broker.protocol.errors import MalformedFrame
from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.jute import REQUEST_BYTES_MAX, Frames


class ClientConnection(Protocol):
    """A client's connection; sending and receiving raise `trio.BrokenResourceError`."""

    async def send_all(self, data: bytes) -> None:
        """Send all of ``data``."""

    async def receive_some(self) -> bytes:
        """Receive some bytes; none if the client has finished."""

    def close(self) -> None:
        """Close the connection; the client receives what was sent."""

    def abort(self) -> None:
        """Reset the connection; what was sent and not received is lost."""


class Listener(Protocol):
    """A port that takes connections of clients."""

    async def accept(self) -> ClientConnection:
        """Wait for a connection."""

    def close(self) -> None:
        """Free the port."""


class ZooKeeperServer:
    """One server of a service, which takes ``request_s`` for each request.

    ``listen`` is called each time that the server runs.
    """

    def __init__(
        self,
        service: ZooKeeperService,
        listen: Callable[[], Listener],
        *,
        request_s: float = 0.0,
    ) -> None:
        self._request_s = request_s
        self._service = service
        self._listen = listen

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; then all connections break, as those of the dead."""
        listener = self._listen()
        self._service.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._expire_sessions)
                task_status.started()
                while True:
                    nursery.start_soon(self._serve, await listener.accept())
        finally:
            self._service.stopped()
            listener.close()

    async def _expire_sessions(self) -> None:
        while True:
            await trio.sleep(self._service.until_tick_ns() / 1e9)
            self._service.expire()

    async def _serve(self, connection: ClientConnection) -> None:
        peer = _Peer(connection)
        try:
            async with trio.open_nursery() as nursery:
                peer.scope = nursery.cancel_scope
                nursery.start_soon(peer.write_all)
                nursery.start_soon(self._read_all, peer)
        finally:
            self._service.disconnect(peer)
            if not peer.said_all:
                connection.abort()
            connection.close()

    async def _read_all(self, peer: _Peer) -> None:
        frames = Frames(REQUEST_BYTES_MAX)
        take = self._service.connect
        try:
            while chunk := await peer.connection.receive_some():
                frames.receive(chunk)
                while (frame := frames.next()) is not None:
                    if self._request_s:
                        await trio.sleep(self._request_s)
                    take(peer, frame)
                    take = self._service.take
        except (trio.BrokenResourceError, MalformedFrame):
            # Gone, or not one of ours: either way there is nothing more to say.
            pass
        peer.scope.cancel()


class _Peer:
    """A client, and what it is to be told."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.scope = trio.CancelScope()
        self.said_all = False
        self._frames: list[bytes] = []
        self._last = False
        self._written = Signal()

    def send(self, frame: bytes) -> None:
        """Send a frame after those that are to be sent already."""
        self._frames.append(frame)
        self._written.notify()

    def hang_up(self) -> None:
        """Send what is to be sent, and end the connection."""
        self._last = True
        self._written.notify()

    async def write_all(self) -> None:
        """Send frames until the last."""
        try:
            while not self.said_all:
                await self._written.wait()
                frames, self._frames = self._frames, []
                await self.connection.send_all(b"".join(frames))
                self.said_all = self._last and not self._frames
        except trio.BrokenResourceError:
            # The reader hears of it as well; what was to be said is lost.
            pass
        self.scope.cancel()
