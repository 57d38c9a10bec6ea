"""Last come, first served."""

from __future__ import annotations

from collections.abc import Sequence

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler


class Newest(Scheduler):
    """Serve the latest arrival first."""

    keeps_flow_order = False
    may_starve = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._jobs: list[Job] = []

    def arrive(self, job: Job, now_ns: int) -> None:
        """Push a job onto the stack."""
        self._jobs.append(job)

    def pick(self, now_ns: int) -> Job | None:
        """Pop the top job."""
        return self._jobs.pop() if self._jobs else None

    def waiting(self) -> Sequence[Job]:
        """Return the waiting jobs."""
        return self._jobs
