"""Rejection of requests that can no longer be answered in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from planes.admission.admission import EXPIRED, HOPELESS
from planes.admission.admission_job import AdmissionJob
from schedulers import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Reject a request at its turn if it cannot be served in time.

    In time means before its own deadline (a client's time limit) and within
    ``limits_ns`` of its class since its receipt. Service takes the expected cost. Under
    overload no service is then spent on responses that no client waits for. Such
    service makes a queue metastable once clients retry. (A cost estimator must lower
    its estimate after such a rejection. Otherwise one slow request would reject all
    later requests of its kind.)

    Law, for known costs and uninterrupted service: a served request completes in time,
    and a rejected request could not have completed in time.

    Source: deadline-aware shedding as in Kudu's ``ServicePicker`` and in Dean and
    Barroso, "The Tail at Scale" (2013). Kudu found (KUDU-1395) that it favours clients
    that retry, so classes that must not be lost are favoured. Cost: O(1).

    >>> from planes import Task
    >>> rule = Deadline(capacity=9, limits_ns={"produce": 100}, favoured=frozenset())
    >>> task = Task(number=0, request_class="produce", received_ns=50, cost_ns=30)
    >>> rule.entered(task, 0, 50)
    >>> rule.judge(task, 120), rule.judge(task, 121)
    (None, 'hopeless')
    """

    capacity: int
    limits_ns: Mapping[str, int]
    favoured: frozenset[str]
    judges: ClassVar[bool] = True

    def admits(self, job: Job, queued: int) -> bool:
        """Return whether there is room."""
        return queued < self.capacity

    def entered(self, task: AdmissionJob, queued: int, now_ns: int) -> None:
        """Set the deadline of the request's class, unless its own is earlier."""
        limit_ns = self.limits_ns.get(task.request_class)
        if limit_ns is None or task.request_class in self.favoured:
            return
        due_ns = task.received_ns + limit_ns
        if task.deadline_ns is None or due_ns < task.deadline_ns:
            task.deadline_ns = due_ns

    def judge(self, task: AdmissionJob, now_ns: int) -> str | None:
        """Reject a request that would finish after its deadline."""
        if task.deadline_ns is None or task.request_class in self.favoured:
            return None
        if now_ns > task.deadline_ns:
            return EXPIRED
        return HOPELESS if now_ns + task.cost_ns > task.deadline_ns else None
