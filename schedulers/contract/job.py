"""A request as scheduling policies see it.

A policy sees jobs and nothing else: no sockets, no bytes, no clock. The layers above
extend a job with what they need (``planes.task.Task``: time stamps, a suspended
coroutine); a policy must not read those fields. Times are integer nanoseconds on the
caller's clock.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Job:
    """One request as its scheduler sees it.

    ``number`` is the order of arrival and breaks every tie. ``level`` is the priority
    of the job's class, 0 being the most urgent. ``cost_ns`` is an estimate made at
    arrival; ``attained_ns`` is the CPU time received so far and, once the job has
    left, its true cost. ``size_ns`` is the true cost where it is known in advance:
    in the model world only. ``tag`` belongs to the policy that holds the job.
    """

    number: int
    request_class: str = "data"
    level: int = 0
    flow: str = ""
    size_bytes: int = 0
    cost_ns: int = 0
    _: KW_ONLY
    arrived_ns: int = 0
    deadline_ns: int | None = None
    size_ns: int | None = None
    attained_ns: int = 0
    tag: Any = None

    def __repr__(self) -> str:
        """Short enough to read in a failing property test."""
        return f"<{self.request_class} #{self.number} level={self.level} {self.flow}>"
