"""Head-of-line priority by level; a job in service is not preempted."""

from __future__ import annotations

from typing import ClassVar

from schedulers.contract.job import Job
from schedulers.contract.scheduler import NEVER
from schedulers.policies.priority import Priority


class NonPreemptivePriority(Priority):
    """Serve the most urgent level first; a job in service finishes.

    The order is that of ``priority``, including the bound on starvation. An urgent job
    waits for the job in service: on average the residual service of all classes. Its
    delay therefore grows with the variance of the service times (Cobham's formula).

    Source: Cobham 1954; Kubernetes, HBase and FoundationDB use this order. Cost: as
    ``priority``.

    >>> from schedulers import SchedulerConfig
    >>> policy = NonPreemptivePriority(SchedulerConfig())
    >>> policy.arrive(Job(number=0, level=4), now_ns=0)
    >>> running = policy.pick(0)
    >>> policy.arrive(Job(number=1, level=0), now_ns=5)
    >>> policy.outranks(running, 5)
    False
    """

    preempts: ClassVar[str] = NEVER

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return False: a job in service runs to completion."""
        return False
