"""Busy time of the event loop's thread, and the ends of its waits."""

from __future__ import annotations

import time
from time import perf_counter

import trio

from planes.clock import NowNs
from planes.cpu_ledger import CpuLedger


class BusyTime(trio.abc.Clock):
    """A Trio clock in a broker's process that notes when the loop waits for events.

    Bills are on the wall clock, which goes on while the kernel runs other processes. A
    bill is therefore a share of this time, not of a CPU clock. The ``ledger`` gets
    the end of each wait, at which the next bill begins.

    Trio calls ``deadline_to_sleep_time`` where nothing is runnable, and only there, and
    reads the time as soon as it has polled for events. An instrument would receive the
    same, but for every poll, which cost a twentieth of a lone connection's requests
    (`make bench`).
    """

    def __init__(self, now_ns: NowNs = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._ledger: CpuLedger | None = None
        self._since_ns = self._waits_since_ns = self._waited_ns = 0

    def begin(self, ledger: CpuLedger) -> None:
        """Look on from now on, inside a run of Trio's."""
        self._ledger = ledger
        self._since_ns = ledger.until_ns = self._now_ns()
        self._waited_ns = 0
        ledger.spans = True

    def busy_ns(self) -> int:
        """Return the time since `begin` that was not spent in waiting."""
        return self._now_ns() - self._since_ns - self._waited_ns

    def cpu_ns(self) -> int:
        """Return the CPU that the process has used."""
        return time.process_time_ns()

    # ---- what Trio calls --------------------------------------------------------

    def start_clock(self) -> None:
        """Begin a run: this clock always goes."""

    def current_time(self) -> float:
        """Return the time in seconds; a wait is over."""
        if self._waits_since_ns:
            now_ns = self._now_ns()
            self._waited_ns += now_ns - self._waits_since_ns
            self._waits_since_ns = 0
            if self._ledger is not None:
                self._ledger.until_ns = now_ns
        return perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds until ``deadline``; a wait begins, unless it is past."""
        sleep_s = deadline - perf_counter()
        self._waits_since_ns = self._now_ns() if sleep_s > 0 else 0
        return sleep_s
