"""Preemptive shortest job first, by original size."""

from __future__ import annotations

from schedulers.contract.job import Job
from schedulers.orders.ranked import Ranked


class Psjf(Ranked):
    """Serve the job of least original size; an arriving smaller job preempts.

    The size is the true size if known, else the expected cost. A job's rank never
    changes. With estimates, PSJF is therefore safer than SRPT, under which an
    underestimated job cannot be preempted once it counts as nearly done.

    Source: Harchol-Balter, Performance Modeling and Design of Computer Systems, ch. 32;
    Scully, Grosof, Mitzenmacher 2022 on estimates. Cost: O(log n).

    >>> from schedulers import SchedulerConfig
    >>> policy = Psjf(SchedulerConfig())
    >>> policy.arrive(Job(number=0, size_ns=500), now_ns=0)
    >>> running = policy.pick(0)
    >>> running.attained_ns = 450
    >>> policy.arrive(Job(number=1, size_ns=100), now_ns=450)
    >>> policy.outranks(running, 450)
    True
    """

    def rank(self, job: Job) -> int:
        """Return the original size."""
        return job.cost_ns if job.size_ns is None else job.size_ns
