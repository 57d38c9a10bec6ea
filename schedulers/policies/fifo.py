"""First in, first out: Kafka's one request queue before KIP-291, and the baseline."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler


class Fifo(Scheduler, Foresight):
    """Serve jobs in order of arrival; never preempt.

    A job that returns from a device or from purgatory is placed before all jobs that
    were never served, as Kafka's handlers poll their callback queue first.

    Source: Kafka's ``RequestChannel``, an ``ArrayBlockingQueue``. Cost: O(1).

    >>> fifo = Fifo(SchedulerConfig())
    >>> for number in range(2):
    ...     fifo.arrive(Job(number=number), now_ns=0)
    >>> fifo.pick(0), fifo.pick(0), fifo.pick(0)
    (<data #0 level=0 >, <data #1 level=0 >, None)
    """

    leave_suffices: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._new: deque[Job] = deque()
        self._back: deque[Job] = deque()

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job."""
        self._new.append(job)

    def pick(self, now_ns: int) -> Job | None:
        """Take a resumed job, else the oldest job."""
        if self._back:
            return self._back.popleft()
        return self._new.popleft() if self._new else None

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job before all jobs that were never served."""
        self._back.append(job)

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs in the order of service."""
        return [*self._back, *self._new]

    def __len__(self) -> int:
        return len(self._new) + len(self._back)

    def check(self) -> None:
        """Assert that jobs are in order of arrival."""
        numbers = [job.number for job in self._new]
        assert numbers == sorted(numbers), numbers
