"""Self-clocked fair queueing: the cheapest virtual time there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from schedulers.flows import Flow, Flows
from schedulers.heap import Heap
from schedulers.job import Job
from schedulers.scheduler import NEVER, SchedulerConfig


class Scfq:
    """Serve the job with the least virtual finish; that finish is virtual time.

    As fair as SFQ over intervals: two backlogged flows' weighted services differ by at
    most L_i/w_i + L_j/w_j at one server. But a job may wait for one job of each other
    flow, where SFQ lets a flow that was idle begin at once: the price of ordering by
    finish. Costs must be known or well guessed at arrival; wrong ones are settled when
    a job leaves.

    Source: Golestani 1994. Cost: O(log f) for f backlogged flows.

    >>> policy = Scfq(SchedulerConfig())
    >>> for n, (flow, cost_ns) in enumerate([("a", 300), ("b", 100), ("b", 100)]):
    ...     policy.arrive(Job(number=n, flow=flow, cost_ns=cost_ns), now_ns=0)
    >>> [policy.pick(0).flow for _ in range(3)]
    ['b', 'b', 'a']
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = True
    may_starve: ClassVar[bool] = False
    preempts: ClassVar[str] = NEVER
    shares_by_weight: ClassVar[bool] = True
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: SchedulerConfig) -> None:
        self._flows = Flows(config)
        self._backlogged: Heap[Flow] = Heap()
        self._virtual = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which starts now if it was idle."""
        flows = self._flows
        if not flows.waiting and not flows.in_service:
            self._virtual = max(self._virtual, flows.restart())
        flow = flows.add(job, self._virtual, front=False)
        if len(flow.jobs) == 1:
            self._place(flow)

    def pick(self, now_ns: int) -> Job | None:
        """Take the head with the least virtual finish."""
        if not self._flows.waiting:
            return None
        flow = self._backlogged.pop()
        job = self._flows.take(flow)
        self._virtual = max(self._virtual, flow.finish)
        if flow.jobs:
            self._place(flow)
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Never: a job in service runs to completion."""
        return False

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Nothing yet: the flow is settled when the turn ends."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Settle the flow's charge for what the turn used."""
        flow = self._flows.leave(job)
        if flow.jobs:
            self._place(flow)
        self._flows.sweep(self._virtual)

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow."""
        self._place(self._flows.add(job, self._virtual, front=True))

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: virtual time moves with service, not with the clock."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate by flow."""
        for flow in self._flows:
            yield from flow.jobs

    def __len__(self) -> int:
        return self._flows.waiting

    def check(self) -> None:
        """Assert that each backlogged flow stands at the finish of its head."""
        self._flows.check()
        backlogged = list(self._flows)
        assert len(backlogged) == len(self._backlogged)
        for flow in backlogged:
            assert self._backlogged.key(flow) == flow.start() + flow.length()

    def _place(self, flow: Flow) -> None:
        finish = flow.start() + flow.length()
        self._backlogged.put(flow, finish, flow.jobs[0].number)
