"""First come, first served; last come, first served while a queue does not drain."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection
from typing import ClassVar, Final

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler

_NS_PER_MS: Final = 1_000_000


class AdaptiveLifo(Scheduler, Foresight):
    """Serve in order of arrival, but the newest first once a queue has formed.

    A queue has formed if some job has waited at every moment of the last
    ``interval.ms`` (100). Under overload, the client of the newest request still waits,
    whereas service in order of arrival would be too late for every request. A job whose
    deadline has passed is picked first: admission rejects it at little cost (``codel``,
    ``deadline``), and its client is notified. A job without a deadline, among jobs with
    deadlines, may not be rejected. It is picked before them, in order of arrival, or it
    would starve. Jobs that were begun are picked before all others. Jobs in service are
    never preempted.

    Source: adaptive LIFO in Maurer, "Fail at Scale" (ACM Queue 13(8), 2015). Overload
    is detected as in the controlled delay of the same article. (HBase checks instead
    whether a queue is more than 0.8 full.) Cost: O(log n) among n jobs with deadlines
    or begun, O(1) for the others.

    >>> policy = AdaptiveLifo(SchedulerConfig(options={"interval.ms": 100}))
    >>> for number in range(4):
    ...     policy.arrive(Job(number=number), now_ns=number)
    >>> policy.pick(50_000_000).number, policy.pick(150_000_000).number
    (0, 3)
    """

    keeps_flow_order: ClassVar[bool] = False
    may_starve: ClassVar[bool] = True
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ("interval.ms",)

    def __init__(self, config: SchedulerConfig) -> None:
        self._interval_ns = round(config.option("interval.ms", 100.0) * _NS_PER_MS)
        # Jobs with a deadline, and jobs without, each in order of arrival.
        self._due: OrderedDict[int, Job] = OrderedDict()
        self._free: OrderedDict[int, Job] = OrderedDict()
        # The deadlines of jobs in ``_due``, and stale deadlines of removed jobs.
        self._deadlines: list[tuple[int, int]] = []
        self._begun: list[tuple[int, Job]] = []
        self._last_empty_ns = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Add the job as the newest."""
        if not self._due and not self._free:
            self._last_empty_ns = now_ns
        if job.deadline_ns is None:
            self._free[job.number] = job
        else:
            self._due[job.number] = job
            heapq.heappush(self._deadlines, (job.deadline_ns, job.number))

    def pick(self, now_ns: int) -> Job | None:
        """Pick a begun, unrejectable or expired job; otherwise the oldest or newest."""
        if self._begun:
            return heapq.heappop(self._begun)[1]
        newest = self._last_empty_ns < now_ns - self._interval_ns
        if not self._due:
            return self._free.popitem(last=newest)[1] if self._free else None
        if self._free:
            return self._free.popitem(last=False)[1]
        deadlines = self._deadlines
        while deadlines[0][1] not in self._due:
            heapq.heappop(deadlines)
        if deadlines[0][0] < now_ns:
            return self._due.pop(heapq.heappop(deadlines)[1])
        return self._due.popitem(last=newest)[1]

    def resume(self, job: Job, now_ns: int) -> None:
        """Queue the job before those that were never served."""
        heapq.heappush(self._begun, (job.number, job))

    def waiting(self) -> Collection[Job]:
        """Return the begun jobs, then the others in order of arrival."""
        begun = (job for _, job in self._begun)
        others = (*self._free.values(), *self._due.values())
        return [*begun, *sorted(others, key=lambda job: job.number)]

    def __len__(self) -> int:
        return len(self._begun) + len(self._free) + len(self._due)

    def check(self) -> None:
        """Assert that jobs are in order of arrival, and each deadline is recorded."""
        for jobs in (self._free, self._due):
            assert list(jobs) == sorted(jobs), list(jobs)
        due = {(job.deadline_ns, number) for number, job in self._due.items()}
        assert due <= set(self._deadlines)
