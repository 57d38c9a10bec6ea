"""A session with ZooKeeper: successive connections, until closed or expired.

Java's ``ZooKeeper`` without its threads. After a lost connection, the session connects
to the next server of the connect string. There it sets its pending watches again, as of
the last known transaction. Only a server can report that the session has expired. While
no server is reachable, calls wait.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Final, TypeVar

import trio

from broker.client.backoff import Backoff
from broker.client.network_client import Connect, reach
from broker.protocol.errors import MalformedFrame
from broker.zookeeper import connect_string, zookeeper_messages
from broker.zookeeper.jute import REQUEST_BYTES_MAX
from broker.zookeeper.watches import Watches
from broker.zookeeper.znodes import (
    Create,
    Delete,
    Event,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    SessionEvent,
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
    Znode,
)
from broker.zookeeper.zookeeper_connection import BROKEN, Call, Connection
from broker.zookeeper.zookeeper_messages import (
    BAD_ARGUMENTS,
    OK,
    Greeting,
    OpFailed,
    Request,
)

T = TypeVar("T")

# As in Java's client, which waits up to a second between servers.
_BACKOFF_S, _BACKOFF_MAX_S = 0.05, 1.0
_HEADER_BYTES: Final = 8
_PASSWORD_BYTES: Final = 16


class ZooKeeperSession:
    """A session with ZooKeeper; `Znodes` describes its calls."""

    def __init__(
        self,
        connect_to: str,
        *,
        timeout_ms: int,
        connect: Connect,
        rng: random.Random,
    ) -> None:
        """``timeout_ms`` is requested; servers limit it to their bounds.

        :raises ValueError: if the connect string is malformed.
        """
        self._where = connect_string.parse(connect_to)
        # A random order distributes clients with one connect string over its servers.
        self._server_count = len(self._where.servers)
        self._servers = cycle(rng.sample(self._where.servers, self._server_count))
        self._timeout_ms = timeout_ms
        self._connect = connect
        self._backoff = Backoff(_BACKOFF_S, _BACKOFF_MAX_S, rng)
        self.session_id = 0
        self._password = bytes(_PASSWORD_BYTES)
        self._last_zxid = 0
        self._watches = Watches()
        self._connection: Connection | None = None
        self._unsent: deque[Call] = deque()
        self._over = False
        self._scope = trio.CancelScope()
        self._task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        self._event_sender, self.events = trio.open_memory_channel[Event](math.inf)
        # The reason why no connection exists, or why the last one ended.
        self.why = "not connected yet"

    # ---- calls ----------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> str:
        """Create a znode; return its path."""
        op = Create(self._where.outside(path), data, ephemeral, sequential)
        return self._where.inside(await self._call(path, zookeeper_messages.create(op)))

    async def get(self, path: str, *, watch: bool = False) -> Znode:
        """Return a znode's data and stat."""
        request = zookeeper_messages.get(self._where.outside(path), watch=watch)
        return await self._call(path, request)

    async def set(self, path: str, data: bytes, *, version: int = -1) -> Stat:
        """Replace a znode's data."""
        op = SetData(self._where.outside(path), data, version)
        return await self._call(path, zookeeper_messages.set_data(op))

    async def delete(self, path: str, *, version: int = -1) -> None:
        """Delete a znode."""
        op = Delete(self._where.outside(path), version)
        await self._call(path, zookeeper_messages.delete(op))

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return a znode's stat, if it exists."""
        request = zookeeper_messages.exists(self._where.outside(path), watch=watch)
        try:
            return await self._call(path, request)
        except NoNode:
            return None

    async def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        """Return the names of a znode's children, sorted."""
        request = zookeeper_messages.children(self._where.outside(path), watch=watch)
        names = await self._call(path, request)
        return tuple(sorted(names))

    async def multi(self, ops: Sequence[Op]) -> tuple[OpResult, ...]:
        """Execute all operations, or none."""
        outside = [replace(op, path=self._where.outside(op.path)) for op in ops]
        path = ops[0].path if ops else "/"
        results = await self._call(path, zookeeper_messages.multi(outside))
        if isinstance(results, OpFailed):
            failed = ops[results.op]
            raise zookeeper_messages.error_of(results.code, failed.path, op=results.op)
        return tuple(
            self._where.inside(result) if isinstance(result, str) else result
            for result in results
        )

    async def make_chroot(self) -> None:
        """Create the missing znodes of the connect string's chroot."""
        names = self._where.chroot.split("/")[1:]
        for count in range(1, len(names) + 1):
            path = "/" + "/".join(names[:count])
            try:
                await self._call(path, zookeeper_messages.create(Create(path)))
            except NodeExists:
                continue

    async def close(self) -> None:
        """End the session; without a connection it is left to expire."""
        self._over = True
        if self._connection is not None:
            farewell = Call(zookeeper_messages.close_session())
            self._connection.submit(farewell)
            with trio.move_on_after(self._timeout_ms / 1000):
                await farewell.done.wait()
        self._scope.cancel()

    async def _call(self, path: str, request: Request[T]) -> T:
        if self._over:
            raise SessionExpired(path)
        if len(request.body) + _HEADER_BYTES > REQUEST_BYTES_MAX:
            # A server would close the connection, also after each retry.
            raise zookeeper_messages.error_of(BAD_ARGUMENTS, path)
        call = Call(request)
        if self._connection is None:
            self._unsent.append(call)
        else:
            self._connection.submit(call)
        try:
            await call.done.wait()
        finally:
            call.abandoned = True
        if call.code != OK:
            raise zookeeper_messages.error_of(call.code, path)
        answer: T = call.answer
        return answer

    # ---- the connections ------------------------------------------------------------

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Maintain the session until it is closed or has expired."""
        self._task_status = task_status
        failures = 0
        try:
            with self._scope:
                while not self._over:
                    await trio.sleep(self._backoff.after(failures))
                    served = await self._visit(*next(self._servers))
                    # A server that disconnects after its greeting counts as a failure.
                    failures = 1 if served else failures + 1
        finally:
            self._end()

    async def _visit(self, host: str, port: int) -> bool:
        """Use a server until the connection ends.

        Return whether it granted a session.
        """
        patience_s = self._timeout_ms / 1000 / self._server_count
        try:
            stream = await reach(self._connect, host, port, patience_s)
        except OSError as error:
            self.why = str(error)
            return False
        connection = Connection(
            stream,
            watches=self._watches,
            on_event=self._publish,
            last_zxid=self._last_zxid,
        )
        try:
            with trio.fail_after(patience_s):
                greeting = await connection.greet(self._greeting())
            served = self._greeted(greeting, connection)
            if served:
                await connection.run()
                self.why = f"{host}:{port}: {connection.why}"
            return served
        except (trio.TooSlowError, *BROKEN) as error:
            self.why = f"{host}:{port} gives no session: {error or 'too slow'}"
            return False
        finally:
            self._last_zxid = connection.last_zxid
            if self._connection is not None:
                self._connection = None
                self._event_sender.send_nowait(SessionEvent.DISCONNECTED)
            await connection.aclose()

    def _greeting(self) -> bytes:
        return zookeeper_messages.connect_request(
            self._last_zxid, self._timeout_ms, self.session_id, self._password
        )

    def _greeted(self, greeting: Greeting, connection: Connection) -> bool:
        """Accept the granted session; return False if it has expired."""
        if greeting.timeout_ms <= 0:
            if self.session_id == 0:
                raise MalformedFrame("a new session that has expired")
            self._expire()
            return False
        self.session_id, self._password = greeting.session_id, greeting.password
        for request in self._watches.requests(self._last_zxid):
            connection.submit(Call(request))
        while self._unsent:
            connection.submit(self._unsent.popleft())
        self._connection = connection
        self._event_sender.send_nowait(SessionEvent.CONNECTED)
        self._task_status.started()
        self._task_status = trio.TASK_STATUS_IGNORED
        return True

    def _publish(self, event: WatchEvent) -> None:
        self._event_sender.send_nowait(
            event._replace(path=self._where.inside(event.path))
        )

    def _expire(self) -> None:
        self.why = "the session has expired"
        self._over = True
        self._event_sender.send_nowait(SessionEvent.EXPIRED)

    def _end(self) -> None:
        self._over = True
        while self._unsent:
            self._unsent.popleft().fail(SessionExpired.code)
        self._event_sender.close()
