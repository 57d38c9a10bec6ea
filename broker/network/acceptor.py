"""Takes the connections of one listener and distributes them over its processors.

Follows Kafka's ``SocketServer.Acceptor``. A connection waits for a slot if
``max.connections`` is reached, and one from an address with too many is closed at once.
The next processor that has room gets it; if none has, the acceptor blocks on the last.
On a listener with TLS the handshake comes before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import trio

from broker.network.connection_quotas import ConnectionQuotas, TooManyConnections
from broker.network.handshakes import Handshakes
from broker.network.processor import Processor
from broker.network.transport import Connection, ListeningSocket
from broker.observation.supervisor import Supervisor


class Acceptor:
    """One listener's task; ``connection_ids`` are the broker's."""

    def __init__(
        self,
        listener: str,
        listening: ListeningSocket,
        processors: Sequence[Processor],
        quotas: ConnectionQuotas,
        connection_ids: Iterator[int],
        supervisor: Supervisor,
        handshakes: Handshakes | None = None,
    ) -> None:
        assert processors
        self.handshakes = handshakes
        self._supervisor = supervisor
        self.listener = listener
        self.listening = listening
        self.processors = tuple(processors)
        self._quotas = quotas
        self._connection_ids = connection_ids
        self._next = 0

    def __repr__(self) -> str:
        return f"<acceptor of {self.listener} at {self.listening.port}>"

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept until cancelled."""
        task_status.started()
        try:
            if self.handshakes is None:
                await self._supervisor.keep("acceptor", self._accept)
            else:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.handshakes.run, self._deal)
                    await self._supervisor.keep("acceptor", self._accept)
        finally:
            self.listening.close()

    async def _accept(self) -> None:
        while True:
            connection, host = await self.listening.accept()
            try:
                await self._take(connection, host)
            except BaseException:
                # No processor owns the connection yet, so it is closed here.
                connection.close()
                raise

    async def _take(self, connection: Connection, host: str) -> None:
        """Count a connection in and deal it."""
        await self._quotas.wait_for_slot(self.listener)
        try:
            self._quotas.open(self.listener, host)
        except TooManyConnections:
            connection.close()
            return
        try:
            if self.handshakes is None:
                await self._deal(connection, host)
            else:
                self.handshakes.begin(connection, host)
        except BaseException:
            # Counted, and never dealt.
            self._quotas.close(self.listener, host)
            raise

    async def _deal(self, connection: Connection, host: str) -> None:
        connection_id = next(self._connection_ids)
        for _ in self.processors:
            processor = self.processors[self._next]
            self._next = (self._next + 1) % len(self.processors)
            if processor.offer(connection, connection_id, host):
                return
        await processor.put(connection, connection_id, host)
