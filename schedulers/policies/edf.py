"""Earliest deadline first."""

from __future__ import annotations

from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job
from schedulers.orders.ranked import Ranked


class Edf(Ranked):
    """Serve the job with the earliest deadline; an arriving earlier deadline preempts.

    A job without a deadline is due ``default_ns`` after its arrival (option, 100 ms).
    On one server all deadlines are met if any policy can meet them. Under overload the
    server is spent on jobs that are late already, and a client gains by a short
    deadline.

    Source: Liu and Layland 1973; Kudu and HBase order RPCs by deadline. Cost: O(log n).

    >>> policy = Edf(SchedulerConfig())
    >>> policy.arrive(Job(number=0, deadline_ns=900), now_ns=0)
    >>> policy.arrive(Job(number=1, deadline_ns=300), now_ns=0)
    >>> policy.pick(0).number
    1
    """

    may_starve: ClassVar[bool] = False
    OPTIONS: ClassVar[tuple[str, ...]] = ("default_ns",)

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self._default_ns = round(config.option("default_ns", 100_000_000))

    def rank(self, job: Job) -> int:
        """Return the deadline."""
        if job.deadline_ns is None:
            return job.arrived_ns + self._default_ns
        return job.deadline_ns
