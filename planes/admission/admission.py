"""The contract of an admission rule: a bound, and a judgement at two moments.

A rule sees admission jobs only; like a policy it has no clock, no I/O and no random
numbers. ``PlaneCore`` calls `admits` when a task arrives, `entered` once it has
entered, and `judge` at its first turn. No task vanishes: a rejected one goes through
its handler as every other does, which answers with the reason's error. A rejection
therefore costs a little service, is stamped and recorded, and always has a response.

Laws, which the tests put to every rule:

1. ``admits`` changes nothing.
2. A favoured class is neither turned away nor throttled.
3. Nothing is judged but once, and only what was never served.
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from planes.admission.admission_job import AdmissionJob
from schedulers import Job

# Reasons, as they are counted. All but the last turn a task away: because its time is
# over, or would be before it is done, or because its class has used up its rate.
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
        """Take note of a task that has entered behind ``queued`` others."""

    def judge(self, task: AdmissionJob, now_ns: int) -> str | None:
        """Return why a task is turned away whose turn has come; None to serve it.

        A task that is served may get a ``throttled_until_ns``.
        """
