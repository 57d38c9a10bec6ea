"""Preemptive shortest job first, by original size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from schedulers.job import Job
from schedulers.job_order import JobOrder
from schedulers.scheduler import ON_ARRIVAL, SchedulerConfig


class Psjf:
    """Serve the job of least original size; a smaller one that arrives preempts.

    The size is the true one where it is known, else the expected cost. Because a job's
    rank never changes, an underestimated job cannot take the server for ever, as it can
    under SRPT: with estimates this is the safer of the two.

    Source: Harchol-Balter, Performance Modeling and Design of Computer Systems, ch. 32;
    Scully, Grosof, Mitzenmacher 2022 on estimates. Cost: O(log n).

    >>> policy = Psjf(SchedulerConfig())
    >>> policy.arrive(Job(number=0, size_ns=500), now_ns=0)
    >>> running = policy.pick(0)
    >>> running.attained_ns = 450
    >>> policy.arrive(Job(number=1, size_ns=100), now_ns=450)
    >>> policy.outranks(running, 450)
    True
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
        """Let the job wait, by original size."""
        self._queue.push(_size_ns(job), job)

    def pick(self, now_ns: int) -> Job | None:
        """Take the job with the least original size."""
        return self._queue.pop()

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a job of smaller size waits."""
        least = self._queue.least()
        return least is not None and least < _size_ns(running)

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Forget nothing: the job was not kept."""

    def resume(self, job: Job, now_ns: int) -> None:
        """Let the job wait again, by original size."""
        self._queue.push(_size_ns(job), job)

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: time alone changes nothing."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate in no order."""
        return (job for _, job in self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Assert that every job stands at its original size."""
        self._queue.check()
        assert all(key == _size_ns(job) for key, job in self._queue)


def _size_ns(job: Job) -> int:
    return job.cost_ns if job.size_ns is None else job.size_ns
