"""First come, first served; last come, first served while the queue stands."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import ClassVar, Final

from schedulers.job import Job
from schedulers.scheduler import NEVER, SchedulerConfig

_NS_PER_MS: Final = 1_000_000


class AdaptiveLifo:
    """Serve in order of arrival, but the newest first once a queue has formed.

    A queue has formed if some job has waited at every moment of the last
    ``interval.ms`` (100). Under overload the newest request is the one whose client
    still waits; in order of arrival each would be served just too late. A job whose
    deadline has passed goes before all others when it is the oldest: admission turns it
    away for little (``codel``, ``deadline``), and its client learns of it. Jobs that
    were begun go on first of all. Nothing is preempted.

    Source: adaptive LIFO in Maurer, "Fail at Scale" (ACM Queue 13(8), 2015); the
    sign of overload is that of the controlled delay in the same article. (HBase takes
    another one: a queue that is more than 0.8 full.) Cost: O(1), but O(log n) among n
    jobs that were begun.

    >>> policy = AdaptiveLifo(SchedulerConfig(options={"interval.ms": 100}))
    >>> for number in range(4):
    ...     policy.arrive(Job(number=number), now_ns=number)
    >>> policy.pick(50_000_000).number, policy.pick(150_000_000).number
    (0, 3)
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = False
    may_starve: ClassVar[bool] = True
    preempts: ClassVar[str] = NEVER
    OPTIONS: ClassVar[tuple[str, ...]] = ("interval.ms",)

    def __init__(self, config: SchedulerConfig) -> None:
        self._interval_ns = round(config.option("interval.ms", 100.0) * _NS_PER_MS)
        self._new: deque[Job] = deque()
        self._begun: list[tuple[int, Job]] = []
        self._last_empty_ns = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Let the job wait as the newest."""
        if not self._new:
            self._last_empty_ns = now_ns
        self._new.append(job)

    def pick(self, now_ns: int) -> Job | None:
        """Take what was begun, what is too late, the newest or the oldest."""
        if self._begun:
            return heapq.heappop(self._begun)[1]
        if not self._new:
            return None
        due_ns = self._new[0].deadline_ns
        too_late = due_ns is not None and due_ns < now_ns
        if not too_late and self._last_empty_ns < now_ns - self._interval_ns:
            return self._new.pop()
        return self._new.popleft()

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say no."""
        return False

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Forget nothing: the job was not kept."""

    def resume(self, job: Job, now_ns: int) -> None:
        """Let the job go on before those that were never served."""
        heapq.heappush(self._begun, (job.number, job))

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: time alone changes who is next, not whether anyone is."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate over what was begun, then in order of arrival."""
        yield from (job for _, job in self._begun)
        yield from self._new

    def __len__(self) -> int:
        return len(self._begun) + len(self._new)

    def check(self) -> None:
        """Assert that jobs stand in order of arrival."""
        numbers = [job.number for job in self._new]
        assert numbers == sorted(numbers), numbers
