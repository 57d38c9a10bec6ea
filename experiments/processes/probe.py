"""How fast a CPU is just now: a fixed loop, timed when asked.

``python -m experiments.processes.probe BINDING`` binds itself as a broker is bound,
answers each line on standard input with the loop's time in nanoseconds, and is asleep
otherwise. The loop is Python, as the broker is: what slows one slows the other.
"""

from __future__ import annotations

import gc
import json
import sys
import time

from experiments.processes.child import Binding, bind

# About a millisecond each; the median of five is not moved by a single interrupt.
_STEPS = 12_000
_WINDOWS = 5


def probe_ns() -> int:
    """Return the median time of the fixed loop. Cost: about 5 ms."""
    return sorted(_window_ns() for _ in range(_WINDOWS))[_WINDOWS // 2]


def _window_ns() -> int:
    began = time.monotonic_ns()
    table = [0] * 256
    state = 1
    for _ in range(_STEPS):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        table[state & 255] += state >> 16
    return time.monotonic_ns() - began


def main() -> None:
    """Answer until standard input ends."""
    bind(Binding(**json.loads(sys.argv[1])))
    gc.disable()
    print("ready", flush=True)
    while sys.stdin.readline():
        print(probe_ns(), flush=True)


if __name__ == "__main__":
    main()
