"""Self-clocked fair queueing: virtual time is the tag of the job in service."""

from __future__ import annotations

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job
from schedulers.orders.fair import FairQueue
from schedulers.orders.flows import Flow
from schedulers.orders.heap import Heap


class Scfq(FairQueue):
    """Serve the job with the least virtual finish; that finish is virtual time.

    As fair as SFQ over intervals: two backlogged flows' weighted services differ by at
    most L_i/w_i + L_j/w_j with one server. The order is by finish, so a job may wait
    for one job of each other flow. SFQ would serve a newly active flow at once. Costs
    must be known or well estimated at arrival; wrong charges are corrected when a job
    leaves.

    Source: Golestani 1994. Cost: O(log f) for f backlogged flows.

    >>> policy = Scfq(SchedulerConfig())
    >>> for n, (flow, cost_ns) in enumerate([("a", 300), ("b", 100), ("b", 100)]):
    ...     policy.arrive(Job(number=n, flow=flow, cost_ns=cost_ns), now_ns=0)
    >>> [policy.pick(0).flow for _ in range(3)]
    ['b', 'b', 'a']
    """

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self._backlogged: Heap[Flow] = Heap()

    def pick(self, now_ns: int) -> Job | None:
        """Take the head with the least virtual finish."""
        if not self._flows.waiting:
            return None
        flow = self._backlogged.pop()
        job = self._flows.take(flow)
        self._virtual = max(self._virtual, flow.finish)
        if flow.jobs:
            self._head_changed(flow)
        return job

    def check(self) -> None:
        """Assert that each backlogged flow is queued by the finish of its head."""
        super().check()
        backlogged = list(self._flows)
        assert len(backlogged) == len(self._backlogged)
        for flow in backlogged:
            assert (self._backlogged.key(flow), flow.jobs[0].number) == flow.due()

    def _head_changed(self, flow: Flow) -> None:
        """Queue the flow by the virtual finish of its head."""
        self._backlogged.put(flow, *flow.due())
