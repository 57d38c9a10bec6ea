"""How long the event loop's thread was busy, and where its waits ended."""

from __future__ import annotations

import trio

from planes.housekeeping import Housekeeping


class BusyTime(trio.abc.Instrument):
    """How long the thread of Trio's loop did not wait for events.

    Bills are on the wall clock, which goes on while the kernel runs somebody else. So
    what was billed is a share of this time, not of a CPU clock. ``books`` are told
    where a wait ended, from which the next bill begins.
    """

    def __init__(self, books: Housekeeping) -> None:
        self._books = books
        self._now_ns = books.now_ns
        self._since_ns = self._waits_since_ns = self._waited_ns = 0

    def begin(self) -> None:
        """Look on from now on, inside a run of Trio's."""
        self._since_ns = self._books.until_ns = self._now_ns()
        self._books.spans = True
        trio.lowlevel.add_instrument(self)

    def busy_ns(self) -> int:
        """Return the time since `begin` that was not spent in waiting."""
        return self._now_ns() - self._since_ns - self._waited_ns

    def before_io_wait(self, timeout: float) -> None:
        """Note that the loop looks for events, and waits if there are none."""
        self._waits_since_ns = self._now_ns() if timeout > 0 else 0

    def after_io_wait(self, timeout: float) -> None:
        """Note that it has looked."""
        if self._waits_since_ns:
            self._books.until_ns = now_ns = self._now_ns()
            self._waited_ns += now_ns - self._waits_since_ns
