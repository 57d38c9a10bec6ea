"""A contract test's own chroot on a server, and sessions in it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio

from broker.client.connection import Stream
from broker.zookeeper.znodes import Event, SessionEvent
from broker.zookeeper.zookeeper_session import Connect, ZooKeeperSession

# Within the bounds of a server with a tick of 2 s.
TIMEOUT_MS = 6000
PATIENCE_S = 30


class OwnChroot:
    """A server and a chroot on it that no other test uses."""

    def __init__(self, servers: str, chroot: str, connect: Connect) -> None:
        self.servers = servers
        self.chroot = chroot
        self.connect = connect
        self.streams: list[Stream] = []

    async def _connect(self, host: str, port: int) -> Stream:
        stream = await self.connect(host, port)
        self.streams.append(stream)
        return stream

    def session(self, seed: int = 1) -> ZooKeeperSession:
        """Return a session that is not running yet."""
        return ZooKeeperSession(
            self.servers + self.chroot,
            timeout_ms=TIMEOUT_MS,
            connect=self._connect,
            rng=random.Random(seed),
        )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[ZooKeeperSession]:
        """Run a session during the body, then close it."""
        session = self.session()
        async with trio.open_nursery() as nursery:
            await nursery.start(session.run)
            await session.make_chroot()
            assert await next_event(session) is SessionEvent.CONNECTED
            yield session
            await session.close()


Scenario = Callable[[OwnChroot], Awaitable[None]]


async def next_event(session: ZooKeeperSession) -> Event:
    with trio.fail_after(PATIENCE_S):
        return await session.events.receive()


def expect_no_event(session: ZooKeeperSession) -> None:
    with pytest.raises(trio.WouldBlock):
        session.events.receive_nowait()
