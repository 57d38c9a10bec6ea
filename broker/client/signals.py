"""Notifications from synchronous code to one task, or to all waiting tasks."""

from __future__ import annotations

from math import inf

import trio


class Signal:
    """Wakes one task; a notification before the wait ends that wait at once."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self) -> None:
        """End the current wait, or the next one if no task is waiting."""
        self._event.set()

    async def wait(self, until_s: float = inf) -> None:
        """Wait for a notification since the last wait, until ``until_s`` at most."""
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
        """Wake all waiting tasks."""
        event, self._event = self._event, trio.Event()
        event.set()

    async def next(self) -> None:
        """Wait for the next change."""
        await self._event.wait()
