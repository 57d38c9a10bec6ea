"""How fast a CPU is while others use it: a fixed loop, timed in what they leave of it.

``python -m experiments.processes.idle_probe BINDING`` binds itself, gives way to
everything else (SCHED_IDLE, and the nice value of its binding between sessions), and
answers every second line on standard input. Between the two it wakes up once in a
millisecond, runs a loop for a twentieth of that if the CPU is free, and says then what
the loop took on average, in nanoseconds. It is CPU time, so a pause in which others ran
is not in it, and a CPU that does less in the same time is. Whoever else begins to run
waits for no more than one such loop, and where the kernel knows idle tasks apart (no
autogroups), for nothing.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time

from experiments.processes.child import Binding, bind

_EVERY_S = 0.001
_STEPS = 300
# It has slept, and others have had its caches.
_STEPS_BEFORE = 100
# Whoever was asked amid a load that leaves nothing times the loop after it.
_TIMES_MIN = 20


def main() -> None:
    """Answer until standard input ends."""
    bind(Binding(**json.loads(sys.argv[1])))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    gc.disable()
    print("ready", flush=True)
    while _line_read():
        print(_mean_until_told_ns(), flush=True)


def _mean_until_told_ns() -> int:
    """Return the loop's mean time from now until there is something to read."""
    total_ns = times = 0
    told = False
    while not told or times < _TIMES_MIN:
        told = _readable_within(0.0 if told else _EVERY_S) or told
        total_ns += _loop_ns()
        times += 1
    _line_read()
    return round(total_ns / times)


def _line_read() -> bool:
    """Read a line, which is empty; False if the input has ended.

    And no further: who has not come to run before both lines were there finds two, and
    `select` does not know of what is in a buffer.
    """
    return bool(os.read(sys.stdin.fileno(), 1))


def _readable_within(seconds: float) -> bool:
    return bool(select.select([sys.stdin], [], [], seconds)[0])


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
