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

    As the quantum shrinks, each of n jobs has an n-th of the server at all times: a
    job's slowdown is 1/(1 - load) whatever its size, and no distribution of sizes can
    hurt. Each turn costs a switch, so the load grows by the switch over the quantum.

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
        """Add the job as the last in turn."""
        self._turns.append(job)

    def pick(self, now_ns: int) -> Job | None:
        """Take the job whose turn it is."""
        if not self._turns:
            return None
        job = self._turns.popleft()
        job.tag = job.attained_ns
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether the turn is over and another job waits for its own."""
        used_ns: int = running.attained_ns - running.tag
        return used_ns >= self._quantum_ns and bool(self._turns)

    def resume(self, job: Job, now_ns: int) -> None:
        """Add the job again as the last in turn."""
        self._turns.append(job)

    def waiting(self) -> Collection[Job]:
        """Return them in the order of turns."""
        return self._turns

    def __len__(self) -> int:
        return len(self._turns)

    def check(self) -> None:
        """Assert that no job waits for two turns."""
        assert len({job.number for job in self._turns}) == len(self._turns)
