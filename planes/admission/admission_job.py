"""The view of a job for admission, and the fields of the decision."""

from __future__ import annotations

from typing import Protocol


class AdmissionJob(Protocol):
    """A received job (`planes.Task`).

    ``can_be_refused``: its response has a field for THROTTLING_QUOTA_EXCEEDED. Until
    ``throttled_until_ns`` the connection of the request is not read.
    """

    request_class: str
    cost_ns: int
    received_ns: int
    deadline_ns: int | None
    can_be_refused: bool
    throttled_until_ns: int
