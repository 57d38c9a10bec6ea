"""Calls to ZooKeeper that are retried after lost connections, and parallel calls.

A lost connection loses the responses to its requests. Reads are repeated. A write may
have succeeded, so that its repetition fails. The effect of the first attempt is then
checked, as in Kafka's ``checkedEphemeralCreate`` and ``conditionalUpdatePath``. The end
of the session (`SessionExpired`) ends the retries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

import trio

from broker.protocol.errors import ErrorCode, KafkaError
from broker.zookeeper.znodes import (
    BadVersion,
    ConnectionLoss,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    SessionExpired,
    Stat,
    Znode,
    Znodes,
)

T = TypeVar("T")

# Largest number of concurrent calls.
AT_ONCE: Final = 256


class RetryingZnodes:
    """The znodes, accessed in one session for as long as it lasts."""

    def __init__(self, znodes: Znodes) -> None:
        self._znodes = znodes

    @property
    def session_id(self) -> int:
        """The session's id, which ephemeral znodes have as their owner."""
        return self._znodes.session_id

    async def get(self, path: str, *, watch: bool = False) -> Znode:
        """Return a znode's data; raise `NoNode`."""
        return await again(lambda: self._znodes.get(path, watch=watch))

    async def find(self, path: str, *, watch: bool = False) -> Znode | None:
        """Return a znode's data; None if the znode does not exist."""
        try:
            return await self.get(path, watch=watch)
        except NoNode:
            return None

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return a znode's stat; the watch reports creation, change and deletion."""
        return await again(lambda: self._znodes.exists(path, watch=watch))

    async def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        """Return the names of a znode's children, sorted; raise `NoNode`."""
        return await again(lambda: self._znodes.children(path, watch=watch))

    async def find_all(
        self, paths: Iterable[str], *, watch: bool = False
    ) -> dict[str, Znode]:
        """Return the data of the existing znodes among these, by path."""
        found: dict[str, Znode] = {}

        async def find_one(path: str) -> None:
            znode = await self.find(path, watch=watch)
            if znode is not None:
                found[path] = znode

        wanted = list(paths)
        await side_by_side([partial(find_one, path) for path in wanted])
        return {path: found[path] for path in wanted if path in found}

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> str:
        """Create a znode; raise `NodeExists` or `NoNode`.

        After a lost connection, a sequential znode may be created twice.
        """
        lost = False
        while True:
            try:
                return await self._znodes.create(
                    path, data, ephemeral=ephemeral, sequential=sequential
                )
            except ConnectionLoss:
                lost = True
            except NodeExists:
                if not lost or not await self._is_ours(path, data, ephemeral):
                    raise
                return path

    async def _is_ours(self, path: str, data: bytes, ephemeral: bool) -> bool:
        found = await self.find(path)
        owner = self.session_id if ephemeral else 0
        if found is None:
            return False
        return found.data == data and found.stat.ephemeral_owner == owner

    async def ensure(self, path: str, data: bytes = b"") -> None:
        """Create a znode unless it exists."""
        try:
            await self.create(path, data)
        except NodeExists:
            return

    async def set(self, path: str, data: bytes, *, version: int = -1) -> Stat:
        """Replace a znode's data; raise `NoNode` or `BadVersion`."""
        lost = False
        while True:
            try:
                return await self._znodes.set(path, data, version=version)
            except ConnectionLoss:
                lost = True
            except BadVersion:
                found = await self.get(path)
                if not lost or found.data != data or found.stat.version != version + 1:
                    raise
                return found.stat

    async def delete(self, path: str, *, version: int = -1) -> None:
        """Delete a znode; do nothing if it does not exist."""
        try:
            await again(lambda: self._znodes.delete(path, version=version))
        except NoNode:
            return

    async def multi(self, ops: Sequence[Op]) -> tuple[OpResult, ...]:
        """Execute all operations or none.

        After a lost connection, a failure may mean that an earlier attempt succeeded.
        """
        return await again(lambda: self._znodes.multi(ops))


async def again(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until its response arrives; the session waits for a connection."""
    while True:
        try:
            return await call()
        except ConnectionLoss:
            continue


async def in_session(
    present: Callable[[], Awaitable[RetryingZnodes]],
    change: Callable[[RetryingZnodes], Awaitable[T]],
) -> T:
    """Change znodes in the present session; raise REQUEST_TIMED_OUT if it expires."""
    try:
        return await change(await present())
    except SessionExpired as expired:
        raise KafkaError(
            ErrorCode.request_timed_out, "the session has expired"
        ) from expired


async def side_by_side(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Make many calls, `AT_ONCE` at a time; raise the first exception unchanged."""
    faults: list[Exception] = []

    async def make(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as fault:
            faults.append(fault)

    for start in range(0, len(calls), AT_ONCE):
        async with trio.open_nursery() as nursery:
            for call in calls[start : start + AT_ONCE]:
                nursery.start_soon(make, call)
        if faults:
            raise faults[0]
