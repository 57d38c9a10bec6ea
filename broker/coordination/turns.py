"""Turns: one handler at a time between two decisions, across calls in threads.

A decision that rests on a state holds only while the state stays the same, and the
state changes only after a thread has made the change durable. A `planes.lock.TaskLock`
may not be held over such a call, a turn may. Waiting handlers keep no seat, so that the
holder always finds one.
"""

from __future__ import annotations

from types import TracebackType

from planes.slices import Wake, asleep


class Turns:
    """A lock of handlers: an asynchronous context manager."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[Wake] = []

    @property
    def is_taken(self) -> bool:
        """Return whether the turn is taken."""
        return self._is_taken

    def take(self) -> None:
        """Take the turn, which is free."""
        assert not self._is_taken
        self._is_taken = True

    def give_back(self) -> None:
        """Give the turn back; the first of those that wait is the likely next."""
        self._is_taken = False
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def _join(self, wake: Wake) -> bool:
        if not self._is_taken:
            return False
        self._waiting.append(wake)
        return True

    async def __aenter__(self) -> None:
        while self._is_taken:
            await asleep(self._join)
        self.take()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()
