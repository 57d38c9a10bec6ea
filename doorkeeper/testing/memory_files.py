"""TCP for a broker with files in memory, which have no descriptor for sendfile."""

from __future__ import annotations

from broker.network.epoll import EpollSelector, TcpNetwork
from broker.network.transport import Connection
from broker.protocol.buffer import FileRegion


class CopyingSelector(EpollSelector):
    """Real sockets; regions of files are copied to them."""

    def send_file(
        self, connection: Connection, region: FileRegion, skip: int, size: int
    ) -> int:
        """Send some of a file's bytes."""
        return connection.send(memoryview(region.read())[skip : skip + size])


class CopyingNetwork(TcpNetwork):
    """Real listeners, with copying selectors."""

    def selector(self) -> CopyingSelector:
        """Return a new selector."""
        return CopyingSelector()
