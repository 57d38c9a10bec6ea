"""Shortest remaining processing time: least mean delay of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from schedulers.job import Job
from schedulers.job_order import JobOrder
from schedulers.scheduler import ON_ARRIVAL, SchedulerConfig


class Srpt:
    """Serve the job with least left to do; one with less left that arrives preempts.

    On every path it keeps the fewest jobs in the system, which makes its mean delay the
    least possible at one server: the yardstick for all others. It needs true sizes; on
    estimates (``cost_ns``, where ``size_ns`` is not known) an underestimated job counts
    as nearly done for as long as it runs.

    Source: Schrage 1968; Schrage and Miller 1966. Cost: O(log n).

    >>> policy = Srpt(SchedulerConfig())
    >>> policy.arrive(Job(number=0, size_ns=500), now_ns=0)
    >>> running = policy.pick(0)
    >>> running.attained_ns = 450
    >>> policy.arrive(Job(number=1, size_ns=100), now_ns=450)
    >>> policy.outranks(running, 450)
    False
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = False
    may_starve: ClassVar[bool] = True
    preempts: ClassVar[str] = ON_ARRIVAL
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: SchedulerConfig) -> None:
        self._queue = JobOrder()

    def arrive(self, job: Job, now_ns: int) -> None:
        """Let the job wait, by remaining size."""
        self._queue.push(_rest_ns(job), job)

    def pick(self, now_ns: int) -> Job | None:
        """Take the job with the least remaining size."""
        return self._queue.pop()

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a job with less left waits."""
        least = self._queue.least()
        return least is not None and least < _rest_ns(running)

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Forget nothing: the job was not kept."""

    def resume(self, job: Job, now_ns: int) -> None:
        """Let the job wait again, by remaining size."""
        self._queue.push(_rest_ns(job), job)

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: time alone changes nothing."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate in no order."""
        return (job for _, job in self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Assert that every job stands at its remaining size."""
        self._queue.check()
        assert all(key == _rest_ns(job) for key, job in self._queue)


def _rest_ns(job: Job) -> int:
    size_ns = job.cost_ns if job.size_ns is None else job.size_ns
    return max(0, size_ns - job.attained_ns)
