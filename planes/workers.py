"""The workers of a dispatcher: those that are idle, and as many more as it takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from planes.slices import rescheduled


class Workers:
    """Trio tasks that run ``work``, of which only as many are made as it takes."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._idle: deque[trio.lowlevel.Task] = deque()
        # Where they run; None until there is one.
        self.nursery: trio.Nursery | None = None

    def wake(self) -> None:
        """Let an idle worker go on, or make a new one."""
        if self._idle:
            trio.lowlevel.reschedule(self._idle.popleft())
        else:
            self.start(self._work, name="worker")

    def start(
        self, function: Callable[..., Awaitable[object]], *args: object, name: str
    ) -> None:
        """Run a function as a task beside the workers."""
        assert self.nursery is not None, "the dispatcher does not run"
        self.nursery.start_soon(function, *args, name=name)

    async def sleep(self) -> None:
        """Wait, as a worker, until woken."""
        worker = trio.lowlevel.current_task()
        self._idle.append(worker)
        await rescheduled(lambda: self._idle.remove(worker))
