"""The machine's clock, which a test can move forward."""

from __future__ import annotations

import time

import trio


class AdvancingClock(trio.abc.Clock):
    """Real time plus an offset that grows; Trio's clock and the broker's in one.

    `advance` is called in the thread of the Trio run, which then finds the deadlines
    that have come due.
    """

    def __init__(self) -> None:
        self._added_ns = 0

    def advance(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        self._added_ns += round(seconds * 1e9)

    def now_ns(self) -> int:
        """Return a monotonic time."""
        return time.monotonic_ns() + self._added_ns

    def now_ms(self) -> int:
        """Return the wall-clock time of records."""
        return (time.time_ns() + self._added_ns) // 1_000_000

    # ---- calls of Trio ----------------------------------------------------------

    def start_clock(self) -> None:
        """Begin a run; this clock always runs."""

    def current_time(self) -> float:
        """Return the time in seconds."""
        return self.now_ns() / 1e9

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds until ``deadline``."""
        return deadline - self.current_time()
