"""Shortest processing time first, by the expected cost of a request."""

from __future__ import annotations

from typing import ClassVar

from schedulers.contract.job import Job
from schedulers.contract.scheduler import NEVER
from schedulers.orders.ranked import Ranked


class Spt(Ranked):
    """Serve the job of least expected cost; a job in service finishes.

    Needs only ``cost_ns``, which the broker learns per API and size. Delays of short
    requests decrease much if sizes vary much; long requests wait, without bound under
    overload. Wrong estimates change the order of service, but waste no work.

    Source: Smith 1956; Phipps 1956 (M/G/1). Cost: O(log n).

    >>> from schedulers import SchedulerConfig
    >>> policy = Spt(SchedulerConfig())
    >>> for n, cost_ns in enumerate((500, 100, 300)):
    ...     policy.arrive(Job(number=n, cost_ns=cost_ns), now_ns=0)
    >>> [policy.pick(0).number for _ in range(3)]
    [1, 2, 0]
    """

    preempts: ClassVar[str] = NEVER

    def rank(self, job: Job) -> int:
        """Return the expected cost."""
        return job.cost_ns

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return False: a job in service runs to completion."""
        return False
