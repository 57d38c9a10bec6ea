"""A ZooKeeper server at a port of the memory network."""

from __future__ import annotations

from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.in_memory.zookeeper_server import CallDisk, ZooKeeperServer
from simulation.virtual_time.memory_network import (
    MemoryConnection,
    MemoryNetwork,
    MemoryStream,
)


def memory_zookeeper(
    service: ZooKeeperService,
    network: MemoryNetwork,
    port: int,
    *,
    request_s: float = 0.0,
    call: CallDisk | None = None,
) -> ZooKeeperServer:
    """Return a server of ``service`` at ``port``; a request costs ``request_s``."""
    return ZooKeeperServer(
        service, lambda: _Listener(network, port), request_s=request_s, call=call
    )


class _Listener:
    def __init__(self, network: MemoryNetwork, port: int) -> None:
        self._network = network
        self._listener = network.listen("127.0.0.1", port)

    async def accept(self) -> _Connection:
        connection, _ = await self._listener.accept()
        assert isinstance(connection, MemoryConnection)
        return _Connection(self._network, connection)

    def close(self) -> None:
        self._listener.close()


class _Connection(MemoryStream):
    def __init__(self, network: MemoryNetwork, connection: MemoryConnection) -> None:
        super().__init__(connection)
        self._network = network

    def close(self) -> None:
        self.connection.close()

    def abort(self) -> None:
        self._network.cut(self.connection)
