"""A job as admission sees it, and the decision about it."""

from __future__ import annotations

from dataclasses import dataclass

from schedulers import Job


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class AdmissionJob(Job):
    """A received job; -1 means not yet.

    ``refusal`` is the reason of a rejection, which the response reports. Until
    ``throttled_until_ns`` the connection of the request is not read.
    """

    received_ns: int = -1
    refusal: str | None = None
    throttled_until_ns: int = 0

    def may_be_refused(self) -> bool:
        """Return whether the response has a field for THROTTLING_QUOTA_EXCEEDED."""
        return False
