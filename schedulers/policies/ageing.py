"""Priority that grows with waiting time, at a rate per level."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler


class Ageing(Scheduler, Foresight):
    """Serve the job whose waiting time times its level's slope is greatest.

    A level's slope is ``ratio`` times that of the next lesser level (option ``ratio``,
    default 2). A job of the lesser level overtakes a job of the greater level once it
    has waited ``ratio`` times as long. Ratio 1 is FIFO; a large ratio approaches strict
    priority. No job starves while the load is below 1. Under lasting overload the waits
    of all levels grow in proportion, and the least level may never be served. Not
    preemptive.

    Source: Kleinrock 1964, "A delay dependent queue discipline". Cost: O(k) per pick
    for k levels in use, O(log n) per arrival in the level.

    >>> policy = Ageing(SchedulerConfig(options={"ratio": 3}))
    >>> policy.arrive(Job(number=0, level=1, arrived_ns=0), now_ns=0)
    >>> policy.arrive(Job(number=1, level=0, arrived_ns=60), now_ns=60)
    >>> policy.arrive(Job(number=2, level=0, arrived_ns=80), now_ns=80)
    >>> [policy.pick(100).number for _ in range(3)]
    [1, 0, 2]
    """

    may_starve: ClassVar[bool] = True
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ("ratio",)

    def __init__(self, config: SchedulerConfig) -> None:
        self._ratio = config.option("ratio", 2.0, least=1.0)
        self._levels: dict[int, list[tuple[int, int, Job]]] = {}
        self._waiting = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Add the job to its level, by age."""
        entry = (job.arrived_ns, job.number, job)
        heapq.heappush(self._levels.setdefault(job.level, []), entry)
        self._waiting += 1

    def pick(self, now_ns: int) -> Job | None:
        """Take the oldest job of the level with the largest age times slope."""
        if not self._waiting:
            return None
        best = min(
            (
                (arrived_ns - now_ns) * self._ratio**-level,
                number,
                level,
            )
            for level, jobs in self._levels.items()
            for arrived_ns, number, _ in jobs[:1]
        )
        self._waiting -= 1
        return heapq.heappop(self._levels[best[2]])[2]

    def resume(self, job: Job, now_ns: int) -> None:
        """Add the job again; its age counts from its arrival."""
        self.arrive(job, now_ns)

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by level."""
        return [job for jobs in self._levels.values() for _, _, job in jobs]

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that the count equals the sum over the levels."""
        assert self._waiting == sum(map(len, self._levels.values()))
