"""Who asks to be let in: a job as admission sees it, and what was decided about it."""

from __future__ import annotations

from dataclasses import dataclass

from schedulers import Job


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Applicant(Job):
    """A job that has been received, -1 meaning not yet.

    ``refusal`` is why admission turned it away: then it is answered just that. Until
    ``throttled_until_ns`` whoever sent it is not to be heard again.
    """

    received_ns: int = -1
    refusal: str | None = None
    throttled_until_ns: int = 0

    def may_be_refused(self) -> bool:
        """Say whether the answer could tell the client that a quota is exceeded."""
        return False
