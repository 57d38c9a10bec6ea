"""Head-of-line priority without preemption: what most production systems do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from schedulers.job import Job
from schedulers.priority import Priority
from schedulers.scheduler import NEVER, SchedulerConfig


class NonPreemptivePriority:
    """Serve the most urgent level first, but let a job in service finish.

    The order is that of ``priority``, bound against starvation included. An urgent job
    waits for what is in service: on the mean the residual service of all classes, so
    its delay grows with the variance of the others (Cobham's formula).

    Source: Cobham 1954; Kubernetes, HBase and FoundationDB order requests so. Cost: as
    ``priority``.

    >>> policy = NonPreemptivePriority(SchedulerConfig())
    >>> policy.arrive(Job(number=0, level=4), now_ns=0)
    >>> running = policy.pick(0)
    >>> policy.arrive(Job(number=1, level=0), now_ns=5)
    >>> policy.outranks(running, 5)
    False
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = True
    may_starve: ClassVar[bool] = False
    preempts: ClassVar[str] = NEVER
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: SchedulerConfig) -> None:
        self._order = Priority(config)

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its level."""
        self._order.arrive(job, now_ns)

    def pick(self, now_ns: int) -> Job | None:
        """Take the oldest job of the starving level, else of the most urgent one."""
        return self._order.pick(now_ns)

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Never: a job in service runs to completion."""
        return False

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Note that the job's level was served until now."""
        self._order.leave(job, now_ns, done=done)

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job before all of its level that were never served."""
        self._order.resume(job, now_ns)

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: a level is relieved at the first pick after its bound."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate by level, then in the order of service."""
        return self._order.waiting()

    def __len__(self) -> int:
        return len(self._order)

    def check(self) -> None:
        """Assert that the levels stand in order."""
        self._order.check()
