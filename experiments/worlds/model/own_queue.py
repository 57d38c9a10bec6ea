"""A separate queue for some classes, before workers that serve both queues."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from planes.admission.admission_job import AdmissionJob
from schedulers import Job


@dataclass(slots=True, kw_only=True)
class OwnQueue:
    """Two bounds: ``own_capacity`` for ``owners``, ``capacity`` for all others.

    A plane has one queue. Counted separately, its two halves are two queues, each with
    its own bound. No task is rejected; ``judge`` only counts a departing task. Cost:
    O(1).
    """

    capacity: int
    own_capacity: int
    owners: frozenset[str]
    judges: ClassVar[bool] = True
    _queued: Counter[bool] = field(default_factory=Counter)

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether there is room in the job's own half."""
        owner = job.request_class in self.owners
        return self._queued[owner] < (self.own_capacity if owner else self.capacity)

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Count a task into its half."""
        self._queued[task.request_class in self.owners] += 1

    def judge(self, task: AdmissionJob, now_ns: int) -> None:
        """Accept the task at its first turn, and remove it from its half."""
        self._queued[task.request_class in self.owners] -= 1
