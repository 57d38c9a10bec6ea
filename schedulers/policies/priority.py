"""Preemptive-resume priority by class, with a time bound on starvation."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import ON_ARRIVAL, Scheduler


class _Level:
    """The waiting jobs of one priority level, in order of arrival."""

    __slots__ = ("back", "new", "unserved_since_ns")

    def __init__(self) -> None:
        self.new: deque[Job] = deque()
        self.back: list[tuple[int, Job]] = []
        self.unserved_since_ns = 0


class Priority(Scheduler, Foresight):
    """Serve the most urgent level first; a more urgent arrival preempts.

    Within a level the order is that of arrival, and a preempted job resumes before all
    jobs that were never served. With ``ageing_ns`` set, a level whose jobs have waited
    that long while none was served is *relieved*: its oldest job is picked next and
    runs without being preempted. A level with waiting jobs is therefore skipped for
    at most ``ageing_ns`` plus one service of every level. Relief delays the urgent
    levels by at most one lesser service per level and ``ageing_ns``. (Promotion of
    every job older than the bound would turn the policy into FIFO under overload, when
    priority matters most: see DECISIONS.md.)

    With the bound, a level starves for a limited time only, as in Ceph and CockroachDB.
    Without it, the policy is strict priority.

    Source: preemptive-resume head-of-line priority (Cobham 1954; Kleinrock, Queueing
    Systems vol. 2, ch. 3). Cost: O(1) per arrival and pick, but O(k) once per
    ``ageing_ns`` and whenever one of k levels fills or empties; O(log n) per resume
    among n preempted jobs.

    >>> policy = Priority(SchedulerConfig())
    >>> produce = Job(number=0, request_class="produce", level=4)
    >>> control = Job(number=1, request_class="control", level=0)
    >>> policy.arrive(produce, now_ns=0)
    >>> running = policy.pick(0)
    >>> policy.arrive(control, now_ns=5)
    >>> policy.outranks(running, 5)
    True
    >>> policy.leave(running, 5, done=False)
    >>> policy.resume(running, 5)
    >>> policy.pick(5), policy.pick(9)
    (<control #1 level=0 >, <produce #0 level=4 >)
    """

    preempts: ClassVar[str] = ON_ARRIVAL
    leave_suffices: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._ageing_ns = config.ageing_ns
        self._levels: dict[int, _Level] = {}
        # The levels with waiting jobs, most urgent first.
        self._busy: list[int] = []
        self._relieved: set[int] = set()
        self._waiting = 0
        # No level starves before this time.
        self._calm_until_ns = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its level."""
        level = self._levels.get(job.level)
        if level is None or not (level.new or level.back):
            level = self._fill(job, now_ns)
        level.new.append(job)
        self._waiting += 1

    def pick(self, now_ns: int) -> Job | None:
        """Take the oldest job of the starving level, else of the most urgent level."""
        busy = self._busy
        if not busy:
            return None
        number = busy[0]
        if (
            len(busy) > 1
            and self._ageing_ns is not None
            and now_ns >= self._calm_until_ns
        ):
            number = self._most_starved(now_ns, self._ageing_ns)
        level = self._levels[number]
        job = heapq.heappop(level.back)[1] if level.back else level.new.popleft()
        self._waiting -= 1
        if number != busy[0]:
            self._relieved.add(job.number)
        if level.new or level.back:
            level.unserved_since_ns = now_ns
        else:
            busy.remove(number)
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether a more urgent level waits and the job was not relieved."""
        busy = self._busy
        if not busy or busy[0] >= running.level:
            return False
        return running.number not in self._relieved

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """End the job's relief, if any; its level was served until now."""
        if self._relieved:
            self._relieved.discard(job.number)
        self._levels[job.level].unserved_since_ns = now_ns

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job before all jobs of its level that were never served."""
        level = self._levels[job.level]
        if not (level.new or level.back):
            level = self._fill(job, now_ns)
        heapq.heappush(level.back, (job.number, job))
        self._waiting += 1

    def reconfigure(self, config: SchedulerConfig) -> None:
        """Replace the ageing bound."""
        self._ageing_ns = config.ageing_ns
        self._calm_until_ns = 0

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by level, then in the order of service."""
        jobs: list[Job] = []
        for number in self._busy:
            level = self._levels[number]
            back = sorted(level.back, key=lambda entry: entry[0])
            jobs += [*(job for _, job in back), *level.new]
        return jobs

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that exactly the levels with jobs are busy, in order."""
        busy = sorted(
            number for number, level in self._levels.items() if level.new or level.back
        )
        assert self._busy == busy, (self._busy, busy)
        levels = self._levels.values()
        assert self._waiting == sum(len(it.new) + len(it.back) for it in levels)
        for level in levels:
            numbers = [job.number for job in level.new]
            assert numbers == sorted(numbers), numbers

    def _fill(self, job: Job, now_ns: int) -> _Level:
        """Mark the job's level, empty so far, as busy; return the level."""
        level = self._levels.get(job.level)
        if level is None:
            level = self._levels[job.level] = _Level()
        insort(self._busy, job.level)
        level.unserved_since_ns = now_ns
        return level

    def _most_starved(self, now_ns: int, ageing_ns: int) -> int:
        """Return the level unserved for longest if over the bound, else the first."""
        longest = min(
            self._busy, key=lambda number: self._levels[number].unserved_since_ns
        )
        overdue_ns = self._levels[longest].unserved_since_ns + ageing_ns
        if now_ns < overdue_ns:
            self._calm_until_ns = overdue_ns
            return self._busy[0]
        return longest
