"""The Trio tasks of a dispatcher: its workers, and the alarm that wakes one."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from planes.clock import NowNs
from planes.slices import rescheduled


class Workers:
    """Trio tasks that run ``work``, of which only as many are made as it takes."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._idle: deque[trio.lowlevel.Task] = deque()
        # The workers' nursery; None until there is one.
        self.nursery: trio.Nursery | None = None

    def wake(self) -> None:
        """Resume an idle worker, or start a new one."""
        if self._idle:
            trio.lowlevel.reschedule(self._idle.popleft())
        else:
            self.start(self._work, name="worker")

    def start(
        self, function: Callable[..., Awaitable[object]], *args: object, name: str
    ) -> None:
        """Run a function as another task of the workers' nursery."""
        assert self.nursery is not None, "the dispatcher does not run"
        self.nursery.start_soon(function, *args, name=name)

    async def sleep(self) -> None:
        """Wait, as a worker, until woken."""
        worker = trio.lowlevel.current_task()
        self._idle.append(worker)
        await rescheduled(lambda: self._idle.remove(worker))


class Alarm:
    """Calls ``ring`` at each time that it was set to, unless an earlier one is set."""

    def __init__(
        self, workers: Workers, now_ns: NowNs, ring: Callable[[], None]
    ) -> None:
        self._workers = workers
        self._now_ns = now_ns
        self._ring = ring
        self._due_ns: int | None = None

    def set(self, due_ns: int | None) -> None:
        """Ring at ``due_ns``, from a separate task; never if it is None."""
        if due_ns is not None and (self._due_ns is None or due_ns < self._due_ns):
            self._due_ns = due_ns
            self._workers.start(self._wait, due_ns, name="alarm")

    async def _wait(self, due_ns: int) -> None:
        await trio.sleep(max(0, due_ns - self._now_ns()) / 1e9)
        if self._due_ns == due_ns:
            self._due_ns = None
        self._ring()
