"""Queue slots that are reserved for some classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planes.admission.admission_job import AdmissionJob
from schedulers import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Give favoured classes the whole queue, others all but ``reserved`` slots.

    A favoured request finds the queue full only if at least ``reserved`` favoured
    requests wait in it.

    Source: trunk reservation (Kelly 1991), as in a telephone exchange. Cost: O(1).

    >>> rule = Reserve(capacity=5, reserved=2, favoured=frozenset({"control"}))
    >>> rule.admits(Job(number=0, request_class="produce"), queued=3)
    False
    >>> rule.admits(Job(number=1, request_class="control"), queued=3)
    True
    """

    capacity: int
    reserved: int
    favoured: frozenset[str]
    judges: ClassVar[bool] = False

    def __post_init__(self) -> None:
        assert 0 <= self.reserved < self.capacity, (self.reserved, self.capacity)

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether there is room for the job's class."""
        if queued < self.capacity - self.reserved:
            return True
        return job.request_class in self.favoured and queued < self.capacity

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Do nothing: this rule never judges."""

    def judge(self, task: AdmissionJob, now_ns: int) -> None:
        """Serve every task that entered."""
