"""Rate per class: a request above the rate is served, and its connection throttled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from planes.admission.admission import OVER_QUOTA
from planes.admission.admission_job import AdmissionJob
from schedulers import Job

_NS_PER_S: Final = 1_000_000_000


class Rate(NamedTuple):
    """Requests per second on average, and the largest burst."""

    per_s: int
    burst: int


@dataclass(slots=True, kw_only=True)
class TokenBucket:
    """Take one token per request at its first turn, from a bucket per class.

    The bucket fills at ``per_s`` tokens a second up to ``burst``. A request is served
    even if its bucket is empty (Kafka's *permissive* quota). Its response reports how
    long the debt lasts, and its connection is not read until then (KIP-219). No request
    is delayed within the broker, where it would hold a slot of the queue; clients
    honour ``throttle_time_ms``. A request whose response has a field for
    THROTTLING_QUOTA_EXCEEDED is rejected while the bucket is in debt, and takes no
    token (*strict*). A class without a rate is not limited.

    Law: with requests from n connections, at most ``burst + per_s * t + n`` of a class
    are served in any t seconds. (Each connection has at most one request that is not
    paid yet, because a connection in debt is not read.)

    Source: KIP-599 (``TokenBucket``, ``ControllerMutationQuota``). The arithmetic is
    that of the generic cell rate algorithm (ITU-T I.371), with integers only: ``_paid``
    over the rate is the theoretical arrival time. Cost: O(1).

    >>> from planes import Task
    >>> rule = TokenBucket(capacity=9, rates={"produce": Rate(per_s=1000, burst=2)})
    >>> tasks = [Task(number=n, request_class="produce") for n in range(3)]
    >>> for task in tasks:
    ...     rule.judge(task, 5_000_000)
    >>> [task.throttled_until_ns for task in tasks]
    [4000000, 5000000, 6000000]
    """

    capacity: int
    rates: Mapping[str, Rate]
    # By class, the time at which the served requests will be paid: nanoseconds times
    # the rate, so that no token is rounded.
    _paid: dict[str, int] = field(default_factory=dict)
    judges: ClassVar[bool] = True

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether there is room."""
        return queued < self.capacity

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Do nothing: a request takes its token when it is served."""

    def judge(self, task: AdmissionJob, now_ns: int) -> str | None:
        """Take a token, and set the time until which the connection is throttled."""
        rate = self.rates.get(task.request_class)
        if rate is None:
            return None
        now = now_ns * rate.per_s
        full = now - rate.burst * _NS_PER_S
        paid = max(self._paid.get(task.request_class, full), full)
        if paid > now and task.can_be_refused:
            task.throttled_until_ns = -(-paid // rate.per_s)
            return OVER_QUOTA
        paid += _NS_PER_S
        self._paid[task.request_class] = paid
        task.throttled_until_ns = -(-paid // rate.per_s)
        return None
