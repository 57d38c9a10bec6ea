"""A ZooKeeper server at a port of the memory network; cancelled, it is killed.

Its service outlives it: run it again, and its tree is there, and its sessions.
"""

from __future__ import annotations

import trio

from broker.client.signals import Signal
from broker.protocol.errors import MalformedFrame
from broker.zookeeper.jute import REQUEST_BYTES_MAX, Frames
from experiments.simulation.zookeeper.service import ZooKeeperService
from experiments.worlds.virtual.memory_network import (
    MemoryConnection,
    MemoryNetwork,
    MemoryStream,
)


class ZooKeeperServer:
    """One server of a service, which takes ``request_s`` for each request."""

    def __init__(
        self,
        service: ZooKeeperService,
        network: MemoryNetwork,
        port: int,
        *,
        request_s: float = 0.0,
    ) -> None:
        self._request_s = request_s
        self._service = service
        self._network = network
        self._port = port

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; then all connections break, as those of the dead."""
        listener = self._network.listen("127.0.0.1", self._port)
        self._service.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._expire_sessions)
                task_status.started()
                while True:
                    connection, _ = await listener.accept()
                    assert isinstance(connection, MemoryConnection)
                    nursery.start_soon(self._serve, connection)
        finally:
            self._service.stopped()
            listener.close()

    async def _expire_sessions(self) -> None:
        while True:
            await trio.sleep(self._service.until_tick_ns() / 1e9)
            self._service.expire()

    async def _serve(self, connection: MemoryConnection) -> None:
        peer = _Peer(MemoryStream(connection))
        try:
            async with trio.open_nursery() as nursery:
                peer.scope = nursery.cancel_scope
                nursery.start_soon(peer.write_all)
                nursery.start_soon(self._read_all, peer)
        finally:
            self._service.disconnect(peer)
            if not peer.said_all:
                self._network.cut(connection)
            connection.close()

    async def _read_all(self, peer: _Peer) -> None:
        frames = Frames(REQUEST_BYTES_MAX)
        take = self._service.connect
        try:
            while chunk := await peer.stream.receive_some():
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

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
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
                await self.stream.send_all(b"".join(frames))
                self.said_all = self._last and not self._frames
        except trio.BrokenResourceError:
            # The reader hears of it as well; what was to be said is lost.
            pass
        self.scope.cancel()
