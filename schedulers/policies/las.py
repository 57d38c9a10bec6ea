"""Least attained service first: for unknown sizes."""

from __future__ import annotations

from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job
from schedulers.contract.scheduler import IN_SERVICE
from schedulers.orders.ranked import Ranked


class Las(Ranked):
    """Serve the job with the least attained service; equal jobs take turns.

    A job is preempted once it is a quantum ahead of a waiting job. Needs no sizes. Mean
    delay is the least possible without sizes if the hazard rate of the size
    distribution is decreasing. With an increasing rate, mean delay exceeds FIFO's.

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

    preempts: ClassVar[str] = IN_SERVICE
    foresees: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self._quantum_ns = config.quantum_ns

    def rank(self, job: Job) -> int:
        """Return the attained service."""
        return job.attained_ns

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether a waiting job has had at least a quantum less."""
        least_ns = self._queue.least()
        if least_ns is None:
            return False
        return least_ns + self._quantum_ns <= running.attained_ns

    def outranked_at_ns(self, running: Job) -> int | None:
        """Return the CPU at which the job is a quantum ahead of a waiting job."""
        least_ns = self._queue.least()
        return None if least_ns is None else least_ns + self._quantum_ns
