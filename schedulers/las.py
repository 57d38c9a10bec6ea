"""Least attained service first: for sizes that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from schedulers.job import Job
from schedulers.job_order import JobOrder
from schedulers.scheduler import IN_SERVICE, SchedulerConfig


class Las:
    """Serve the job that has had least service; those that had as little share it.

    A job gives way once it is a quantum ahead of one that waits. Knows no sizes, and is
    the best that can be done without them if large jobs are likely to be still larger
    (decreasing hazard rate); if not, it is worse than FIFO.

    Source: Kleinrock, Queueing Systems vol. 2, ch. 4 (foreground-background); Nuyens
    and Wierman 2008. Cost: O(log n).

    >>> policy = Las(SchedulerConfig(quantum_ns=10))
    >>> policy.arrive(Job(number=0), now_ns=0)
    >>> running = policy.pick(0)
    >>> running.attained_ns = 9
    >>> policy.arrive(Job(number=1), now_ns=9)
    >>> policy.outranks(running, 9)
    False
    >>> running.attained_ns = 10
    >>> policy.outranks(running, 10)
    True
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = False
    may_starve: ClassVar[bool] = True
    preempts: ClassVar[str] = IN_SERVICE
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: SchedulerConfig) -> None:
        self._quantum_ns = config.quantum_ns
        self._queue = JobOrder()

    def arrive(self, job: Job, now_ns: int) -> None:
        """Let the job wait, by attained service."""
        self._queue.push(job.attained_ns, job)

    def pick(self, now_ns: int) -> Job | None:
        """Take the job with the least attained service."""
        return self._queue.pop()

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a job waits that has had a quantum less."""
        least_ns = self._queue.least()
        return (
            least_ns is not None and least_ns + self._quantum_ns <= running.attained_ns
        )

    def outranked_at_ns(self, running: Job) -> int | None:
        """Return the CPU with which the job is a quantum ahead of one that waits."""
        least_ns = self._queue.least()
        return None if least_ns is None else least_ns + self._quantum_ns

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost: it stands in the job."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Forget nothing: the job was not kept."""

    def resume(self, job: Job, now_ns: int) -> None:
        """Let the job wait again, by attained service."""
        self._queue.push(job.attained_ns, job)

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: time alone changes nothing."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate in no order."""
        return (job for _, job in self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Assert that every job stands at its attained service."""
        self._queue.check()
        assert all(key == job.attained_ns for key, job in self._queue)
