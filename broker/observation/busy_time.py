"""Busy time of the event loop's thread, and the ends of its waits."""

from __future__ import annotations

import time
from time import perf_counter

import trio

from planes.clock import NowNs
from planes.cpu_ledger import CpuLedger


class BusyTime(trio.abc.Clock):
    """A Trio clock for a broker's process that records when the loop waits for events.

    Bills are in wall-clock time, which includes time in which the kernel runs other
    processes. A bill is therefore a share of this busy time, not of a CPU clock. The
    ``ledger`` receives the end of each wait, at which the next bill begins.

    Trio calls ``deadline_to_sleep_time`` only when no task is runnable, and reads the
    time as soon as it has polled for events. A Trio instrument would be called at every
    poll, which cost a twentieth of the throughput of a single connection (`make
    bench`).
    """

    def __init__(self, now_ns: NowNs = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._ledger: CpuLedger | None = None
        self._since_ns = self._waits_since_ns = self._waited_ns = 0

    def begin(self, ledger: CpuLedger) -> None:
        """Start to measure, within a Trio run."""
        self._ledger = ledger
        self._since_ns = ledger.until_ns = self._now_ns()
        self._waited_ns = 0
        ledger.spans = True

    def busy_ns(self) -> int:
        """Return the time since `begin` without waits."""
        return self._now_ns() - self._since_ns - self._waited_ns

    def cpu_ns(self) -> int:
        """Return the CPU time used by the process."""
        return time.process_time_ns()

    # ---- Trio's clock interface -------------------------------------------------

    def start_clock(self) -> None:
        """Do nothing: this clock needs no start."""

    def current_time(self) -> float:
        """Return the time in seconds; ends a wait."""
        if self._waits_since_ns:
            now_ns = self._now_ns()
            self._waited_ns += now_ns - self._waits_since_ns
            self._waits_since_ns = 0
            if self._ledger is not None:
                self._ledger.until_ns = now_ns
        return perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds until ``deadline``; a wait begins unless it has passed."""
        sleep_s = deadline - perf_counter()
        self._waits_since_ns = self._now_ns() if sleep_s > 0 else 0
        return sleep_s
