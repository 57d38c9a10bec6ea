"""Base of policies that serve the job of least rank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import ON_ARRIVAL, Scheduler
from schedulers.orders.job_order import JobOrder


class Ranked(Scheduler, Foresight):
    """Serve the job of least ``rank``; an arriving job of less rank preempts.

    A rank may change while a job is in service, never while it waits. Among jobs of
    equal rank, the earlier job is served. Cost: O(log n).
    """

    keeps_flow_order: ClassVar[bool] = False
    may_starve: ClassVar[bool] = True
    preempts: ClassVar[str] = ON_ARRIVAL
    leave_suffices: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._queue = JobOrder()

    @abstractmethod
    def rank(self, job: Job) -> int:
        """Return the rank of a job; the job of least rank is served first."""

    def arrive(self, job: Job, now_ns: int) -> None:
        """Add the job, by rank."""
        self._queue.push(self.rank(job), job)

    def pick(self, now_ns: int) -> Job | None:
        """Take the job of least rank."""
        return self._queue.pop()

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether a job of less rank waits."""
        least = self._queue.least()
        return least is not None and least < self.rank(running)

    def resume(self, job: Job, now_ns: int) -> None:
        """Add the job again, by its present rank."""
        self._queue.push(self.rank(job), job)

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs in no order."""
        return [job for _, job in self._queue]

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Assert that every job is queued by its rank."""
        self._queue.check()
        assert all(key == self.rank(job) for key, job in self._queue)
