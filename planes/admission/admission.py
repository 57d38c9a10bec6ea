"""The contract of an admission rule: a queue bound, and a decision at first service.

A rule sees admission jobs only; like a policy it has no clock, no I/O and no random
numbers. ``PlaneCore`` calls `admits` when a task arrives, `entered` once it has
entered, and `judge` at its first turn. No task is dropped: the handler of a rejected
task answers with the error code of the reason. A rejection therefore costs a little
service, is stamped and recorded, and always has a response.

Laws, checked by the tests for every rule:

1. ``admits`` changes no state.
2. A favoured class is neither rejected nor throttled.
3. A task is judged at most once, and never after it has been served.
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from planes.admission.admission_job import AdmissionJob
from schedulers import Job

# Reasons, as they are counted. All but the last reject a task: its deadline has passed,
# it would finish after its deadline, or its class is over its rate.
EXPIRED: Final = "expired"
HOPELESS: Final = "hopeless"
OVER_QUOTA: Final = "over_quota"
THROTTLED: Final = "throttled"


class Admission(Protocol):
    """The bound of a plane's queue, and the rule for requests that wait in it.

    The bound counts waiting requests that were never served (``queued.max.requests``,
    for classes that the rule does not favour). Where ``judges`` is false, ``entered``
    and ``judge`` are never called.
    """

    judges: ClassVar[bool]

    @property
    def capacity(self) -> int:
        """Return the bound."""

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether ``job`` may enter a queue that holds ``queued`` requests."""

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Record a task that has entered behind ``queued`` others."""

    def judge(self, task: AdmissionJob, now_ns: int) -> str | None:
        """Return the reason to reject a task at its first turn; None to serve it.

        May set ``throttled_until_ns`` of a task that is served.
        """
