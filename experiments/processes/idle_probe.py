"""Keeps a CPU awake, and says how fast it is in what others leave of it.

``python -m experiments.processes.idle_probe BINDING`` binds itself, gives way to
everything else (SCHED_IDLE, and the nice value of its binding between sessions), and
runs a short fixed loop for as long as nobody else has the CPU. It answers every second
line on standard input: what the loop took on average since the line before, in
nanoseconds. That is CPU time, so a pause in which others ran is not in it, and a CPU
that does less in the same time is.

It sleeps for no more than some microseconds, and so neither does the CPU. The CPU of a
virtual machine that sleeps is given away by its host, and may wake up where another
machine's thread shares its core: there it is slower by 1.65 until it is moved again. A
broker sleeps a thousand times a second. Beside a generator on another CPU, a loop that
woke up for each of its turns was slow in 6 to 80 % of them on such a host, and in 2 to
30 % with this process behind it. Real CPUs leave their low clocks and deep sleep, too.

Without those microseconds a broker that was woken up waited for up to 4 ms: a kernel
that groups processes by sessions takes no notice of SCHED_IDLE between groups, and who
has had more than its share is not let in before a tick.
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

# Few: somebody who wakes up may have to wait for the end of them.
_STEPS = 150
# Others have had its caches.
_STEPS_BEFORE = 50
_NAP_S = 1e-6
_PR_SET_TIMERSLACK = 29
# Whoever was asked amid a load that leaves nothing times the loop after it.
_TIMES_MIN = 20


def main() -> None:
    """Run until standard input ends."""
    bind(Binding(**json.loads(sys.argv[1])))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    gc.disable()
    print("ready", flush=True)
    while True:
        _mean_until_told_ns()
        if not _line_read():
            return
        mean_ns = _mean_until_told_ns()
        if not _line_read():
            return
        print(mean_ns, flush=True)


def _mean_until_told_ns() -> int:
    """Return the loop's mean time from now until there is something to read."""
    total_ns = times = 0
    while not _readable_after_a_nap() or times < _TIMES_MIN:
        total_ns += _loop_ns()
        times += 1
    return round(total_ns / times)


def _line_read() -> bool:
    """Read a line, which is empty; False if the input has ended.

    And no further: who has not come to run before both lines were there finds two, and
    `select` does not know of what is in a buffer.
    """
    return bool(os.read(sys.stdin.fileno(), 1))


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
