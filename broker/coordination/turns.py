"""Turns: mutual exclusion of handlers that may be held across calls in threads.

A decision is based on a state, which changes only after a thread has made the change
durable. No other decision may come in between. A `planes.lock.TaskLock` must not be
held across such a call; a turn may be. Waiting handlers keep no seat, so the holder can
always get one.
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
        """Take the free turn."""
        assert not self._is_taken
        self._is_taken = True

    def give_back(self) -> None:
        """Release the turn and wake all waiters, in order; one of them takes it."""
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
