"""A process that keeps a CPU awake, and measures the speed of its idle time.

``python -m experiments.processes.idle_probe BINDING`` binds itself and takes the lowest
priority: SCHED_IDLE, and the nice value of its binding between sessions. It runs a
short fixed loop while the CPU is otherwise idle. Every second line on standard input is
answered with the loop's mean time since the line before, in nanoseconds. The time is
CPU time: it excludes other processes, and includes a slower CPU.

Its sleeps are only microseconds, so the CPU hardly sleeps. A virtual machine's sleeping
CPU is given away by its host, and may wake up where another machine's thread shares its
core. There it is slower by 1.65 until the host moves it again. A broker sleeps a
thousand times per second.

On such a host, with a generator on another CPU, a loop that woke up for each of its
turns was slow in 6 to 80 % of them. With this process behind it, 2 to 30 % were slow.
Real CPUs also leave their low clocks and deep sleep.

Without these sleeps a broker that was woken up waited for up to 4 ms. A kernel that
groups processes by sessions ignores SCHED_IDLE between groups, and does not schedule a
process that has had more than its share before a tick.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import sys
import time

from experiments.processes.child import Binding, bind

# Few, because a waking process may have to wait for their end.
_STEPS = 150
# Steps that refill the caches after other processes.
_STEPS_BEFORE = 50
_NAP_S = 1e-6
_PR_SET_TIMERSLACK = 29
# If a load leaves no idle CPU time, the loop is timed after the load.
_TIMES_MIN = 20


def main() -> None:
    """Run until standard input ends."""
    bind(Binding(**json.loads(sys.argv[1])))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    gc.disable()
    print("ready", flush=True)
    answer()


def answer() -> None:
    """Answer every second line with the mean time since the line before."""
    while True:
        mean_ns()
        if not _line():
            return
        between_ns = mean_ns()
        if not _line():
            return
        print(between_ns, flush=True)


def mean_ns() -> int:
    """Run the loop until there is input; return its mean time."""
    total_ns = turns = 0
    while not _readable_after_a_nap() or turns < _TIMES_MIN:
        total_ns += _loop_ns()
        turns += 1
    return round(total_ns / turns)


def _line() -> bool:
    """Read an empty line; False if the input has ended.

    Reads no further: if the process ran only after both lines had arrived, `select`
    would not see a buffered second line.
    """
    return os.read(sys.stdin.fileno(), 1) == b"\n"


def _readable_after_a_nap() -> bool:
    return bool(select.select([sys.stdin], [], [], _NAP_S)[0])


def _loop_ns() -> int:
    table = [0] * 256
    _loop(_STEPS_BEFORE, table)
    began_ns = time.thread_time_ns()
    _loop(_STEPS, table)
    return time.thread_time_ns() - began_ns


def _loop(steps: int, table: list[int]) -> None:
    """Compute in Python, as a broker does, so that both slow down alike."""
    state = 1
    for _ in range(steps):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        table[state & 255] += state >> 16


if __name__ == "__main__":
    main()
