"""Waits of handlers for ZooKeeper, and for metadata that the controller sends."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
)
from typing import Final, TypeVar

import trio

from broker.client.signals import Changes
from broker.coordination.zookeeper.handler_tasks import HandlerTasks
from broker.coordination.zookeeper.retrying import RetryingZnodes, in_session
from broker.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")

# Time-out for ZooKeeper of a request without a time-out of its own.
_WRITE_MS: Final = 30_000


class HandlerWaits:
    """Waits in this member's tasks; ``present`` returns its ZooKeeper session."""

    def __init__(
        self,
        tasks: HandlerTasks,
        present: Callable[[], Awaitable[RetryingZnodes]],
    ) -> None:
        self.tasks = tasks
        self.present = present
        # Notified whenever the controller has sent metadata.
        self.changes = Changes()

    async def write(
        self,
        change: Callable[[RetryingZnodes], Awaitable[R]],
        timeout_ms: float = _WRITE_MS,
    ) -> R:
        """Change znodes in the present session; raise REQUEST_TIMED_OUT.

        A time-out means that ZooKeeper did not respond or the session has expired. The
        change may have succeeded nevertheless.
        """

        async def waiting() -> R:
            try:
                with trio.fail_after(timeout_ms / 1000):
                    return await in_session(self.present, change)
            except trio.TooSlowError as away:
                why = f"ZooKeeper has not answered within {timeout_ms} ms"
                raise KafkaError(ErrorCode.request_timed_out, why) from away

        return await self.tasks.run_for_handler(waiting)

    async def seen(self, condition: Callable[[], bool], timeout_ms: int) -> None:
        """Wait until received metadata meets a condition; raise REQUEST_TIMED_OUT.

        A time-out undoes nothing. With ``timeout_ms`` 0, return at once.
        """

        async def waiting() -> None:
            with trio.move_on_after(timeout_ms / 1000):
                while not condition():
                    await self.changes.next()

        if timeout_ms > 0 and not condition():
            await self.tasks.run_for_handler(waiting)
            if not condition():
                raise KafkaError(ErrorCode.request_timed_out)
