"""Processor sharing by quantum: round robin over all jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import IN_SERVICE, Scheduler


class ProcessorSharing(Scheduler, Foresight):
    """Serve every job a quantum in turn.

    As the quantum shrinks, each of n jobs has a share 1/n of the server at all times. A
    job's mean slowdown is then 1/(1 - load), for every size and size distribution. Each
    turn costs a switch, which increases the load by switch time over quantum.

    Source: Kleinrock 1967, "Time-shared systems". Cost: O(1).

    >>> policy = ProcessorSharing(SchedulerConfig(quantum_ns=10))
    >>> for n in range(2):
    ...     policy.arrive(Job(number=n), now_ns=0)
    >>> first = policy.pick(0)
    >>> first.attained_ns = 10
    >>> policy.outranks(first, 10)
    True
    >>> policy.leave(first, 10, done=False)
    >>> policy.resume(first, 10)
    >>> [policy.pick(10).number for _ in range(2)]
    [1, 0]
    """

    preempts: ClassVar[str] = IN_SERVICE
    leave_suffices: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._quantum_ns = config.quantum_ns
        self._turns: deque[Job] = deque()

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to the round."""
        self._turns.append(job)

    def pick(self, now_ns: int) -> Job | None:
        """Take the job whose turn it is."""
        if not self._turns:
            return None
        job = self._turns.popleft()
        job.tag = job.attained_ns
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether the turn is over and another job waits."""
        used_ns: int = running.attained_ns - running.tag
        return used_ns >= self._quantum_ns and bool(self._turns)

    def resume(self, job: Job, now_ns: int) -> None:
        """Append the job to the round again."""
        self._turns.append(job)

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs in the order of turns."""
        return self._turns

    def __len__(self) -> int:
        return len(self._turns)

    def check(self) -> None:
        """Assert that no job is queued twice."""
        assert len({job.number for job in self._turns}) == len(self._turns)
