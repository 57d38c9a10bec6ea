"""Cost of a policy: push + pop at a steady queue length, against a bare heapq.

A queue a hundred times as long makes ``log n`` 1.7 times as large. Any further growth
is due to memory, and the heapq of the same jobs has it as well. The garbage collector
is off: its cost depends on the number of jobs, not on the operations.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from collections.abc import Callable, Iterator

from bench.row import BenchRow, paired
from schedulers import POLICIES, Job, Scheduler, SchedulerConfig, make

QUEUE_LENGTHS = (10, 1_000, 100_000)
_OPERATIONS = 20_000
_ROUNDS = 5
_FLOWS = 50
_LEVELS = 6


def rows() -> Iterator[BenchRow]:
    """Compare every registered policy at every queue length, and how its cost grows."""
    for name in POLICIES:
        ours: dict[int, list[float]] = {length: [] for length in QUEUE_LENGTHS}
        theirs: dict[int, list[float]] = {length: [] for length in QUEUE_LENGTHS}
        for _ in range(_ROUNDS):
            for length in QUEUE_LENGTHS:
                ours[length].append(_policy_ns(name, length))
                theirs[length].append(_heapq_ns(length))
        for length in QUEUE_LENGTHS:
            yield paired(
                f"push+pop {name} at {length} queued",
                "ns",
                ours[length],
                "heapq",
                theirs[length],
                more_is_better=False,
            )
        yield paired(
            f"push+pop {name}, growth from {QUEUE_LENGTHS[1]} to {QUEUE_LENGTHS[2]}",
            "times",
            _growth(ours),
            "heapq",
            _growth(theirs),
            more_is_better=False,
        )


def _growth(cost_ns: dict[int, list[float]]) -> list[float]:
    """Return the growth of the cost to the longest queue, round by round."""
    _, middle, longest = QUEUE_LENGTHS
    return [b / a for a, b in zip(cost_ns[middle], cost_ns[longest], strict=True)]


def _timed_ns(work: Callable[[], None]) -> float:
    """Return the mean time of an operation, without garbage collection."""
    gc.collect()
    gc.disable()
    try:
        began_ns = time.perf_counter_ns()
        work()
        return (time.perf_counter_ns() - began_ns) / _OPERATIONS
    finally:
        gc.enable()


def _jobs(count: int) -> list[Job]:
    rng = random.Random(20)
    return [
        Job(
            number=number,
            request_class=f"class-{number % _LEVELS}",
            level=rng.randrange(_LEVELS),
            flow=f"flow-{rng.randrange(_FLOWS)}",
            cost_ns=rng.randrange(10_000, 1_000_000),
            size_ns=rng.randrange(10_000, 1_000_000),
            deadline_ns=rng.randrange(10**9),
            arrived_ns=number,
        )
        for number in range(count)
    ]


def _policy_ns(name: str, length: int) -> float:
    """Time arrive, pick and leave of one job with ``length`` others waiting."""
    scheduler: Scheduler = make(name, SchedulerConfig(rng=random.Random(20)))
    jobs = _jobs(length + _OPERATIONS)
    for job in jobs[:length]:
        scheduler.arrive(job, job.number)

    def work() -> None:
        for job in jobs[length:]:
            now_ns = job.number
            scheduler.arrive(job, now_ns)
            picked = scheduler.pick(now_ns)
            if picked is not None:
                scheduler.leave(picked, now_ns, done=True)

    return _timed_ns(work)


def _heapq_ns(length: int) -> float:
    """Time push and pop of a bare heap of (level, number, job)."""
    jobs = _jobs(length + _OPERATIONS)
    heap = [(job.level, job.number, job) for job in jobs[:length]]
    heapq.heapify(heap)

    def work() -> None:
        for job in jobs[length:]:
            heapq.heappush(heap, (job.level, job.number, job))
            heapq.heappop(heap)

    return _timed_ns(work)
