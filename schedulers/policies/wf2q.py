"""Worst-case fair weighted fair queueing: no job starts before GPS would start it."""

from __future__ import annotations

from typing import ClassVar

from schedulers.contract.job import Job
from schedulers.orders.fair import FairQueue
from schedulers.orders.flows import UNIT, Flow


class Wf2q(FairQueue):
    """Serve the job of least virtual finish among those that GPS would have begun.

    A job is eligible once virtual time has reached its virtual start. Unlike under WFQ,
    no flow gets ahead of its fluid share by more than one job. Virtual time grows with
    the service given, divided by the weights of the active flows. It never lags behind
    the least start of the waiting jobs. Costs must be known or well estimated at
    arrival; wrong charges are corrected when a job leaves.

    Source: Bennett and Zhang 1996 and 1997 (WF2Q+). Cost: O(f) for f backlogged flows.

    >>> from schedulers import SchedulerConfig
    >>> policy = Wf2q(SchedulerConfig(weights={"half": 5.0}))
    >>> for n in range(4):
    ...     policy.arrive(
    ...         Job(number=n, request_class="half", flow="a", cost_ns=100), now_ns=0
    ...     )
    >>> for n in range(4, 7):
    ...     policy.arrive(Job(number=n, flow=f"b{n}", cost_ns=100), now_ns=0)
    >>> order = []
    >>> for _ in range(4):
    ...     job = policy.pick(0)
    ...     job.attained_ns = 100
    ...     policy.ran(job, 100, 0)
    ...     policy.leave(job, 0, done=True)
    ...     order.append(job.flow)
    >>> order
    ['a', 'b4', 'a', 'b5']
    """

    leave_suffices: ClassVar[bool] = False

    def pick(self, now_ns: int) -> Job | None:
        """Take the eligible head with the least virtual finish."""
        if not self._flows.waiting:
            return None
        backlogged = list(self._flows)
        least = min(flow.start() for flow in backlogged)
        self._virtual = max(self._virtual, least)
        eligible = [flow for flow in backlogged if flow.start() <= self._virtual]
        return self._flows.take(min(eligible, key=Flow.due))

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Advance virtual time by the service given, shared by the active flows."""
        weight = self._flows.active_weight(self._virtual)
        self._virtual += round(used_ns * UNIT / weight)
