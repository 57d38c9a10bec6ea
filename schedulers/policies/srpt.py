"""Shortest remaining processing time first: least mean delay on one server."""

from __future__ import annotations

from schedulers.contract.job import Job
from schedulers.orders.ranked import Ranked


class Srpt(Ranked):
    """Serve the job with least remaining work; an arriving shorter job preempts.

    On every sample path SRPT keeps the fewest jobs in the system, so its mean delay is
    the least possible with one server: a lower bound for all other policies. It needs
    true sizes. With estimates (``cost_ns``, if ``size_ns`` is unknown), an
    underestimated job counts as nearly done for as long as it runs.

    Source: Schrage 1968; Schrage and Miller 1966. Cost: O(log n).

    >>> from schedulers import SchedulerConfig
    >>> policy = Srpt(SchedulerConfig())
    >>> policy.arrive(Job(number=0, size_ns=500), now_ns=0)
    >>> running = policy.pick(0)
    >>> running.attained_ns = 450
    >>> policy.arrive(Job(number=1, size_ns=100), now_ns=450)
    >>> policy.outranks(running, 450)
    False
    """

    def rank(self, job: Job) -> int:
        """Return the remaining size."""
        size_ns = job.cost_ns if job.size_ns is None else job.size_ns
        return max(0, size_ns - job.attained_ns)
