"""Strict preemptive-resume priority by class, with a bound against starvation."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import ClassVar

from sortedcontainers import SortedDict

from schedulers.job import Job
from schedulers.scheduler import SchedulerConfig


class _Level:
    """The waiting jobs of one priority level, in order of arrival."""

    __slots__ = ("back", "new", "passed_over_since_ns")

    def __init__(self, now_ns: int) -> None:
        self.new: deque[Job] = deque()
        self.back: list[tuple[int, Job]] = []
        self.passed_over_since_ns = now_ns

    def pop(self) -> Job:
        return heapq.heappop(self.back)[1] if self.back else self.new.popleft()

    def __len__(self) -> int:
        return len(self.new) + len(self.back)


class Priority:
    """Serve the most urgent level first; a more urgent arrival preempts.

    Within a level the order is that of arrival, and a preempted job resumes before all
    that were never served. With ``ageing_ns`` set, a level that has waited that long
    without any of its jobs being picked is *relieved*: its oldest job is picked next
    and runs without being preempted. So a level with waiting jobs is passed over for at
    most ``ageing_ns`` plus one service, and relief costs the urgent levels at most one
    lesser service per ``ageing_ns``. (Promoting every job older than the bound would
    turn the policy into FIFO under overload, just when priority matters: see
    DECISIONS.md.)

    Source: preemptive-resume head-of-line priority (Cobham 1954; Kleinrock, Queueing
    Systems vol. 2, ch. 3). Cost: O(k) per pick for k levels in use, O(log n) per
    resume among n preempted jobs, else O(1).

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

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._ageing_ns = config.ageing_ns
        self._levels: SortedDict[int, _Level] = SortedDict()
        self._relieved: set[int] = set()
        self._waiting = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its level."""
        self._level(job, now_ns).new.append(job)
        self._waiting += 1

    def pick(self, now_ns: int) -> Job | None:
        """Take the oldest job of the starving level, else of the most urgent one."""
        if not self._waiting:
            return None
        level: _Level
        urgent, level = self._levels.peekitem(0)
        starving = self._starving(now_ns)
        if starving is not None and starving != urgent:
            urgent, level = starving, self._levels[starving]
            relieved = True
        else:
            relieved = False
        job = level.pop()
        self._waiting -= 1
        if relieved:
            self._relieved.add(job.number)
        if level:
            level.passed_over_since_ns = now_ns
        else:
            del self._levels[urgent]
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a more urgent level waits; a relieved job is left alone."""
        if not self._waiting or running.number in self._relieved:
            return False
        most_urgent: int = self._levels.peekitem(0)[0]
        return most_urgent < running.level

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """End the job's relief, if it had one."""
        self._relieved.discard(job.number)

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job before all of its level that were never served."""
        heapq.heappush(self._level(job, now_ns).back, (job.number, job))
        self._waiting += 1

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: a level is relieved at the first pick after its bound."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate by level, then in the order of service."""
        for level in self._levels.values():
            for _, job in sorted(level.back, key=lambda entry: entry[0]):
                yield job
            yield from level.new

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that no level is empty and each stands in order of arrival."""
        assert self._waiting == sum(map(len, self._levels.values()))
        for level in self._levels.values():
            assert level, "an empty level was kept"
            numbers = [job.number for job in level.new]
            assert numbers == sorted(numbers), numbers

    def _level(self, job: Job, now_ns: int) -> _Level:
        level: _Level | None = self._levels.get(job.level)
        if level is None:
            level = self._levels[job.level] = _Level(now_ns)
        return level

    def _starving(self, now_ns: int) -> int | None:
        """Find the level passed over for longest beyond the bound, if any."""
        if self._ageing_ns is None or len(self._levels) == 1:
            return None
        number, level = min(
            self._levels.items(), key=lambda item: item[1].passed_over_since_ns
        )
        overdue = now_ns - level.passed_over_since_ns >= self._ageing_ns
        return number if overdue else None
