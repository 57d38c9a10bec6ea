"""Shortest processing time first, by what such requests usually cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from schedulers.job import Job
from schedulers.job_order import JobOrder
from schedulers.scheduler import NEVER, SchedulerConfig


class Spt:
    """Serve the job that is expected to cost least; let a job in service finish.

    Needs no more than ``cost_ns``, which the broker learns per API and size. Short
    requests gain much if sizes vary much; long ones wait, without bound under
    overload. Wrong estimates cost order, never work.

    Source: Smith 1956; Phipps 1956 (M/G/1). Cost: O(log n).

    >>> policy = Spt(SchedulerConfig())
    >>> for n, cost_ns in enumerate((500, 100, 300)):
    ...     policy.arrive(Job(number=n, cost_ns=cost_ns), now_ns=0)
    >>> [policy.pick(0).number for _ in range(3)]
    [1, 2, 0]
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = False
    may_starve: ClassVar[bool] = True
    preempts: ClassVar[str] = NEVER
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: SchedulerConfig) -> None:
        self._queue = JobOrder()

    def arrive(self, job: Job, now_ns: int) -> None:
        """Let the job wait, by expected cost."""
        self._queue.push(job.cost_ns, job)

    def pick(self, now_ns: int) -> Job | None:
        """Take the job with the least expected cost."""
        return self._queue.pop()

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Never: a job in service runs to completion."""
        return False

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Forget nothing: the job was not kept."""

    def resume(self, job: Job, now_ns: int) -> None:
        """Let the job wait again, by expected cost."""
        self._queue.push(job.cost_ns, job)

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: time alone changes nothing."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate in no order."""
        return (job for _, job in self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Assert that every job stands at its expected cost."""
        self._queue.check()
        assert all(key == job.cost_ns for key, job in self._queue)
