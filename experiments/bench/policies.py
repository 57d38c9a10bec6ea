"""What a policy costs: push + pop at a steady queue length, beside a bare heapq."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterator
from functools import partial

from experiments.bench.row import Row, in_turn
from schedulers import POLICIES, Job, Scheduler, SchedulerConfig, make

QUEUE_LENGTHS = (10, 1_000, 100_000)
_OPERATIONS = 20_000
_FLOWS = 50
_LEVELS = 6


def rows() -> Iterator[Row]:
    """Compare every registered policy at every queue length."""
    for name in POLICIES:
        for length in QUEUE_LENGTHS:
            yield in_turn(
                f"push+pop {name} at {length} queued",
                "ns",
                partial(_policy_ns, name, length),
                "heapq",
                partial(_heapq_ns, length),
            )


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
    began_ns = time.perf_counter_ns()
    for job in jobs[length:]:
        now_ns = job.number
        scheduler.arrive(job, now_ns)
        picked = scheduler.pick(now_ns)
        if picked is not None:
            scheduler.leave(picked, now_ns, done=True)
    return (time.perf_counter_ns() - began_ns) / _OPERATIONS


def _heapq_ns(length: int) -> float:
    """Time push and pop of a bare heap of (level, number, job)."""
    jobs = _jobs(length + _OPERATIONS)
    heap = [(job.level, job.number, job) for job in jobs[:length]]
    heapq.heapify(heap)
    began_ns = time.perf_counter_ns()
    for job in jobs[length:]:
        heapq.heappush(heap, (job.level, job.number, job))
        heapq.heappop(heap)
    return (time.perf_counter_ns() - began_ns) / _OPERATIONS
