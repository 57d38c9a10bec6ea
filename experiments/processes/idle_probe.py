"""A process that keeps a CPU awake, and measures its remaining speed.

``python -m experiments.processes.idle_probe BINDING`` binds itself, gives way to
everything else (SCHED_IDLE, and the nice value of its binding between sessions), and
runs a short fixed loop while the CPU is otherwise idle. It answers every second line on
standard input with one of JSON: the loop's mean time since the line before, and its
slowest time, in nanoseconds. That is CPU time: a pause in which other processes ran is
not in it, and a slower CPU is.

The slowest time is the largest median of a few turns in a row, some milliseconds on an
otherwise idle CPU. A host may slow a machine by half for ten of them, which the mean of
a fifth of a second cannot distinguish from a slightly slower machine. A line may hold
an instant of ``time.monotonic_ns``; turns that ended before it are not counted.

It sleeps for no more than some microseconds, so the CPU hardly sleeps. A virtual
machine's sleeping CPU is given away by its host, and may wake up where another
machine's thread shares its core: there it is slower by 1.65 until it is moved again. A
broker sleeps a thousand times a second. With a generator on another CPU, a loop that
woke up for each of its turns was slow in 6 to 80 % of them on such a host, and in 2 to
30 % with this process behind it. Real CPUs leave their low clocks and deep sleep, too.

Without those microseconds a broker that was woken up waited for up to 4 ms: a kernel
that groups processes by sessions ignores SCHED_IDLE between groups, and a process that
has had more than its share is not scheduled before a tick.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import statistics
import sys
import time

from experiments.processes.child import Binding, bind

# Few: a process that wakes up may have to wait for the end of them.
_STEPS = 150
# Others have had its caches.
_STEPS_BEFORE = 50
_NAP_S = 1e-6
_PR_SET_TIMERSLACK = 29
# Under a load that leaves no CPU, the loop is timed after the load.
_TIMES_MIN = 20
# Turns in a row of which one interrupt does not move the median.
_SPAN = 50


def main() -> None:
    """Run until standard input ends."""
    bind(Binding(**json.loads(sys.argv[1])))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    gc.disable()
    print("ready", flush=True)
    while True:
        Turns().run_until_told()
        if _line() is None:
            return
        turns = Turns()
        turns.run_until_told()
        since = _line()
        if since is None:
            return
        print(json.dumps(turns.times_ns(int(since or 0))), flush=True)


class Turns:
    """The loop's times, all together and by spans of some turns in a row."""

    def __init__(self) -> None:
        self._total_ns = self._times = 0
        self._span_ns: list[int] = []
        # When spans were over, and their medians.
        self._spans: list[tuple[int, float]] = []

    def run_until_told(self) -> None:
        """Run the loop from now until there is something to read."""
        while not _readable_after_a_nap() or self._times < _TIMES_MIN:
            took_ns = _loop_ns()
            self._total_ns += took_ns
            self._times += 1
            self._span_ns.append(took_ns)
            if len(self._span_ns) == _SPAN:
                self._end_span()

    def times_ns(self, since_ns: int) -> dict[str, int]:
        """Return the mean and the largest median, of turns that ended since then."""
        medians_ns = [ns for ended_ns, ns in self._spans if ended_ns >= since_ns]
        mean_ns = self._total_ns / self._times
        return {
            "mean_ns": round(mean_ns),
            "slowest_ns": round(max(medians_ns, default=mean_ns)),
        }

    def _end_span(self) -> None:
        self._spans.append((time.monotonic_ns(), statistics.median(self._span_ns)))
        self._span_ns = []


def _line() -> str | None:
    """Read a line without its end; None if the input has ended.

    It reads no further: a process that ran only after both lines had arrived finds two,
    and `select` does not see buffered bytes.
    """
    read = b""
    while (byte := os.read(sys.stdin.fileno(), 1)) != b"\n":
        if not byte:
            return None
        read += byte
    return read.decode()


def _readable_after_a_nap() -> bool:
    return bool(select.select([sys.stdin], [], [], _NAP_S)[0])


def _loop_ns() -> int:
    table = [0] * 256
    _loop(_STEPS_BEFORE, table)
    began_ns = time.thread_time_ns()
    _loop(_STEPS, table)
    return time.thread_time_ns() - began_ns


def _loop(steps: int, table: list[int]) -> None:
    """Compute in Python, as a broker does: what slows one slows the other."""
    state = 1
    for _ in range(steps):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        table[state & 255] += state >> 16


if __name__ == "__main__":
    main()
