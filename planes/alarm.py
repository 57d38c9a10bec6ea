"""An alarm under Trio: calls when a time has come that nobody else would notice."""

from __future__ import annotations

from collections.abc import Callable

import trio

from planes.clock import NowNs
from planes.workers import Workers


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
        """Ring at ``due_ns``, from a task beside the workers; never if it is None."""
        if due_ns is not None and (self._due_ns is None or due_ns < self._due_ns):
            self._due_ns = due_ns
            self._workers.start(self._wait, due_ns, name="alarm")

    async def _wait(self, due_ns: int) -> None:
        await trio.sleep(max(0, due_ns - self._now_ns()) / 1e9)
        if self._due_ns == due_ns:
            self._due_ns = None
        self._ring()
