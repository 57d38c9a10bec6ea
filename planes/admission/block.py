"""Admission rule of Kafka: a full queue blocks the next request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from planes.admission.admission_job import AdmissionJob
from schedulers import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Admit ``capacity`` requests; later ones wait in front of the queue.

    The reader (``broker.network.request_channel``) decides whether their wait delays
    the *other* connections of a processor.

    Source: ``queued.max.requests`` of Kafka's ``RequestChannel``. Cost: O(1).

    >>> Block(capacity=2).admits(Job(number=7), queued=2)
    False
    """

    capacity: int
    judges: ClassVar[bool] = False

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether there is room."""
        return queued < self.capacity

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Do nothing: this rule never judges."""

    def judge(self, task: AdmissionJob, now_ns: int) -> None:
        """Serve every task that entered."""
