"""Earliest deadline first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import ClassVar

from schedulers.job import Job
from schedulers.scheduler import ON_ARRIVAL, SchedulerConfig


class Edf:
    """Serve the job whose deadline is nearest; a nearer one that arrives preempts.

    A job without a deadline is due ``default_ns`` after its arrival (option, 100 ms).
    Optimal on one server for meeting deadlines that can all be met; under overload it
    spends the server on jobs that are late already, and a deadline favours whoever
    states a short one.

    Source: Liu and Layland 1973; Kudu and HBase order RPCs so. Cost: O(log n).

    >>> policy = Edf(SchedulerConfig())
    >>> policy.arrive(Job(number=0, deadline_ns=900), now_ns=0)
    >>> policy.arrive(Job(number=1, deadline_ns=300), now_ns=0)
    >>> policy.pick(0).number
    1
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = False
    may_starve: ClassVar[bool] = False
    preempts: ClassVar[str] = ON_ARRIVAL
    OPTIONS: ClassVar[tuple[str, ...]] = ("default_ns",)

    def __init__(self, config: SchedulerConfig) -> None:
        self._default_ns = round(config.option("default_ns", 100_000_000))
        self._queue: list[tuple[int, int, Job]] = []

    def arrive(self, job: Job, now_ns: int) -> None:
        """Let the job wait, by deadline."""
        heapq.heappush(self._queue, (self._due_ns(job), job.number, job))

    def pick(self, now_ns: int) -> Job | None:
        """Take the job with the least deadline."""
        return heapq.heappop(self._queue)[2] if self._queue else None

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a job with a nearer deadline waits."""
        return bool(self._queue) and self._queue[0][0] < self._due_ns(running)

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Forget nothing: the job was not kept."""

    def resume(self, job: Job, now_ns: int) -> None:
        """Let the job wait again, by deadline."""
        heapq.heappush(self._queue, (self._due_ns(job), job.number, job))

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: time alone changes nothing."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate in no order."""
        return (job for _, _, job in self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Assert that every job stands at its deadline."""
        assert all(key == self._due_ns(job) for key, _, job in self._queue)

    def _due_ns(self, job: Job) -> int:
        if job.deadline_ns is None:
            return job.arrived_ns + self._default_ns
        return job.deadline_ns
