"""Admission of some classes although the queue is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planes.admission.admission_job import AdmissionJob
from schedulers import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Exempt:
    """Admit favoured classes always, others while fewer than ``capacity`` wait.

    A favoured class has no bound here, but each connection has at most one request in
    the broker at a time.

    Source: the ``Exempt`` priority level of Kubernetes' API priority and fairness.
    Cost: O(1).

    >>> rule = Exempt(capacity=5, favoured=frozenset({"control"}))
    >>> rule.admits(Job(number=0, request_class="produce"), queued=5)
    False
    >>> rule.admits(Job(number=1, request_class="control"), queued=5)
    True
    """

    capacity: int
    favoured: frozenset[str]
    judges: ClassVar[bool] = False

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether there is room, or the class needs none."""
        return queued < self.capacity or job.request_class in self.favoured

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Do nothing: this rule never judges."""

    def judge(self, task: AdmissionJob, now_ns: int) -> None:
        """Serve every task that entered."""
