"""Acceptance of one listener's connections, and distribution over its processors.

Follows Kafka's ``SocketServer.Acceptor``. A connection waits for a slot if
``max.connections`` is reached. A connection from an address with too many connections
is closed at once. A connection from an address above its creation rate is closed after
a delay, unread, which slows down clients that reconnect at once. The number of delayed
connections is bounded, since each is an open file.

The next processor with room gets the connection; if none has room, the acceptor blocks
on the last. On a listener with TLS the handshake is made before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import trio

from broker.network.connection_quotas import (
    AddressThrottled,
    ConnectionQuotas,
    TooManyConnections,
)
from broker.network.handshakes import Handshakes
from broker.network.processor import Processor
from broker.network.transport import Connection, ListeningSocket
from broker.observation.supervisor import Supervisor

_DELAYED_MAX: Final = 1000


class Acceptor:
    """The accepting task of one listener; all listeners share ``connection_ids``."""

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
        self._delayed = 0

    def __repr__(self) -> str:
        return f"<acceptor of {self.listener} at {self.listening.port}>"

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept until cancelled."""
        task_status.started()
        try:
            async with trio.open_nursery() as self._nursery:
                if self.handshakes is not None:
                    await self._nursery.start(self.handshakes.run, self._deal)
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
        """Count a connection in the quotas and pass it to a processor."""
        await self._quotas.wait_for_slot(self.listener)
        try:
            self._quotas.open(self.listener, host)
        except TooManyConnections:
            connection.close()
            return
        except AddressThrottled as throttled:
            if self._delayed >= _DELAYED_MAX:
                connection.close()
                return
            self._delayed += 1
            delay_s = throttled.delay_ms / 1000
            self._nursery.start_soon(
                self._close_later, connection, delay_s, name="throttled connection"
            )
            return
        try:
            if self.handshakes is None:
                await self._deal(connection, host)
            else:
                self.handshakes.begin(connection, host)
        except BaseException:
            # The connection was counted, but reached no processor.
            self._quotas.close(self.listener, host)
            raise

    async def _close_later(self, connection: Connection, delay_s: float) -> None:
        try:
            await trio.sleep(delay_s)
        finally:
            self._delayed -= 1
            connection.close()

    async def _deal(self, connection: Connection, host: str) -> None:
        connection_id = next(self._connection_ids)
        for _ in self.processors:
            processor = self.processors[self._next]
            self._next = (self._next + 1) % len(self.processors)
            if processor.offer(connection, connection_id, host):
                return
        await processor.put(connection, connection_id, host)
