"""Earliest deadline first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from schedulers.job import Job
from schedulers.job_order import JobOrder
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
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ("default_ns",)

    def __init__(self, config: SchedulerConfig) -> None:
        self._default_ns = round(config.option("default_ns", 100_000_000))
        self._queue = JobOrder()

    def arrive(self, job: Job, now_ns: int) -> None:
        """Let the job wait, by deadline."""
        self._queue.push(self._due_ns(job), job)

    def pick(self, now_ns: int) -> Job | None:
        """Take the job with the least deadline."""
        return self._queue.pop()

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a job with a nearer deadline waits."""
        least = self._queue.least()
        return least is not None and least < self._due_ns(running)

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Forget nothing: the job was not kept."""

    def resume(self, job: Job, now_ns: int) -> None:
        """Let the job wait again, by deadline."""
        self._queue.push(self._due_ns(job), job)

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: time alone changes nothing."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate in no order."""
        return (job for _, job in self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Assert that every job stands at its deadline."""
        self._queue.check()
        assert all(key == self._due_ns(job) for key, job in self._queue)

    def _due_ns(self, job: Job) -> int:
        if job.deadline_ns is None:
            return job.arrived_ns + self._default_ns
        return job.deadline_ns
