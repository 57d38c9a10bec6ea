"""Limit on the time in the queue, shorter while the queue does not drain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from planes.admission.admission import EXPIRED
from planes.admission.admission_job import AdmissionJob
from schedulers import Job


@dataclass(slots=True, kw_only=True)
class CoDel:
    """Reject after a wait of ``interval_ns``, or ``target_ns`` in a standing queue.

    A queue stands if it has not been empty for ``interval_ns`` when a request enters. A
    burst passes; under overload the wait is cut to the target, so served requests are
    recent and their clients still wait. A request that has waited longer than its limit
    at its turn is rejected. The limit is stored as the job's ``deadline_ns``, which
    ``adaptive-lifo`` and ``edf`` order by.

    Source: controlled delay in Maurer, "Fail at Scale" (ACM Queue 13(8), 2015), with
    its M = 5 ms and N = 100 ms; after Nichols and Jacobson, "Controlling Queue Delay"
    (2012). Cost: O(1).

    >>> from planes import Task
    >>> rule = CoDel(capacity=9, target_ns=5, interval_ns=100, favoured=frozenset())
    >>> first, second, late = (Task(number=n) for n in range(3))
    >>> rule.entered(first, 0, 0)
    >>> rule.entered(second, 1, 100)
    >>> rule.entered(late, 1, 101)
    >>> first.deadline_ns, second.deadline_ns, late.deadline_ns
    (100, 200, 106)
    >>> rule.judge(late, 106), rule.judge(late, 107)
    (None, 'expired')
    """

    capacity: int
    target_ns: int
    interval_ns: int
    favoured: frozenset[str]
    _last_empty_ns: int = field(default=0)
    judges: ClassVar[bool] = True

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether there is room."""
        return queued < self.capacity

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Set the limit, which depends on the state of the queue."""
        if queued == 0:
            self._last_empty_ns = now_ns
        if task.request_class in self.favoured:
            return
        stands = self._last_empty_ns < now_ns - self.interval_ns
        task.deadline_ns = now_ns + (self.target_ns if stands else self.interval_ns)

    def judge(self, task: AdmissionJob, now_ns: int) -> str | None:
        """Reject a request that has waited for longer than its limit."""
        if task.request_class in self.favoured or task.deadline_ns is None:
            return None
        return EXPIRED if now_ns > task.deadline_ns else None
