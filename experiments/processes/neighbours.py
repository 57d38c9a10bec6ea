"""Noisy neighbours: processes that use CPU and memory intermittently, for a while.

``python -m experiments.processes.neighbours SECONDS [COUNT] [SEED]`` starts ``COUNT``
processes, by default one per CPU. Each alternates between work and rest, exponentially
distributed with a mean of two seconds each, as tenants of a shared machine do. At work
it walks over 32 MiB, so it uses caches and memory bandwidth as well as CPU. Neighbours
run at the usual priority, below an experiment that may raise its own, and end with
their parent.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time

import numpy as np

from experiments.processes.child import die_with

_MEAN_S = 2.0
_BYTES = 32 << 20


def neighbour(seed: str, until: float, parent: int) -> None:
    """Alternate between work and rest until ``until`` on the monotonic clock."""
    die_with(parent)
    rng = random.Random(seed)
    walked = np.zeros(_BYTES // 8)
    while time.monotonic() < until:
        turn = min(until, time.monotonic() + rng.expovariate(1 / _MEAN_S))
        while time.monotonic() < turn:
            walked += 1.0
        left_s = until - time.monotonic()
        time.sleep(max(0.0, min(left_s, rng.expovariate(1 / _MEAN_S))))


def main() -> None:
    """Start neighbours, and wait until they have ended."""
    seconds, *rest = map(float, sys.argv[1:])
    count = int(rest[0]) if rest else len(os.sched_getaffinity(0))
    seed = int(rest[1]) if len(rest) > 1 else 1
    until = time.monotonic() + seconds
    processes = [
        multiprocessing.Process(
            target=neighbour, args=(f"{seed}/{number}", until, os.getpid())
        )
        for number in range(count)
    ]
    print(f"{count} neighbours for {seconds:g} s, seed {seed}", flush=True)
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
