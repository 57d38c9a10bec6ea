"""A queue with half of its capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planes.admission.admission_job import AdmissionJob
from schedulers import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Halved:
    """Admit a request while the queue is less than half full. Cost: O(1)."""

    capacity: int
    judges: ClassVar[bool] = False

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether there is room."""
        return 2 * queued < self.capacity

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Do nothing: no admitted request is judged."""

    def judge(self, task: AdmissionJob, now_ns: int) -> str | None:
        """Serve every admitted request."""
        return None
