"""A request as scheduling policies see it.

A policy sees jobs only: no sockets, no bytes, no clock. Higher layers extend a job with
fields of their own (``planes.task.Task``: time stamps, a suspended coroutine). A policy
must not read those fields. Times are integer nanoseconds on the caller's clock.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Job:
    """A request as its scheduler sees it.

    ``number`` is the order of arrival and breaks every tie. ``level`` is the priority
    of the job's class, 0 being the most urgent. ``cost_ns`` is an estimate made at
    arrival. ``attained_ns`` is the CPU time received so far; after the job has left,
    it is the true cost. ``size_ns`` is the true cost if known in advance, which is the
    case in the model world only. ``tag`` belongs to the policy that holds the job.
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
        """Return a short text for the output of property tests."""
        return f"<{self.request_class} #{self.number} level={self.level} {self.flow}>"
