"""TCP for a broker whose files are in memory: they have no descriptor to send from."""

from __future__ import annotations

from broker.network.epoll import EpollSelector, TcpNetwork
from broker.network.transport import Connection
from broker.protocol.buffer import FileRegion


class CopyingSelector(EpollSelector):
    """Real sockets, to which regions of files are copied."""

    def send_file(
        self, connection: Connection, region: FileRegion, skip: int, size: int
    ) -> int:
        """Send some of a file's bytes."""
        return connection.send(memoryview(region.read())[skip : skip + size])


class CopyingNetwork(TcpNetwork):
    """Real listeners, with selectors that copy."""

    def selector(self) -> CopyingSelector:
        """Return a new selector."""
        return CopyingSelector()
