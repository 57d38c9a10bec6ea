"""Two ways for synchronous code to wake tasks: one of them, or all."""

from __future__ import annotations

from math import inf

import trio


class Signal:
    """Wakes one task; notified before it waits, the task does not wait at all."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self) -> None:
        """End the present wait, or else the next one."""
        self._event.set()

    async def wait(self, until_s: float = inf) -> None:
        """Wait for a notification since the last wait, but not beyond ``until_s``."""
        if until_s == inf:
            await self._event.wait()
        else:
            with trio.move_on_at(until_s):
                await self._event.wait()
        self._event = trio.Event()


class Changes:
    """Wakes all tasks that wait for the next change of something."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self) -> None:
        """Wake all that wait now."""
        event, self._event = self._event, trio.Event()
        event.set()

    async def next(self) -> None:
        """Wait for the next change."""
        await self._event.wait()
