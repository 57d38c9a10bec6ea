"""Worst-case fair weighted fair queueing: never ahead of the fluid ideal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from schedulers.flows import UNIT, Flow, Flows
from schedulers.job import Job
from schedulers.scheduler import NEVER, SchedulerConfig


class Wf2q:
    """Serve, of the jobs that GPS would have begun, the one with the least finish.

    A job is eligible once virtual time has reached its virtual start, so no flow gets
    ahead of its fluid share by more than one job, as it can under WFQ. Virtual time
    grows with the service given, over the weights of the active flows, and never lags
    behind the least start of those that wait. Costs must be known or well guessed at
    arrival; wrong ones are settled when a job leaves.

    Source: Bennett and Zhang 1996 and 1997 (WF2Q+). Cost: O(f) for f backlogged flows.

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

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = True
    may_starve: ClassVar[bool] = False
    preempts: ClassVar[str] = NEVER
    shares_by_weight: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: SchedulerConfig) -> None:
        self._flows = Flows(config)
        self._virtual = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which starts now if it was idle."""
        flows = self._flows
        if not flows.waiting and not flows.in_service:
            self._virtual = max(self._virtual, flows.restart())
        flows.add(job, self._virtual, front=False)

    def pick(self, now_ns: int) -> Job | None:
        """Take the eligible head with the least virtual finish."""
        if not self._flows.waiting:
            return None
        backlogged = list(self._flows)
        least = min(flow.start() for flow in backlogged)
        self._virtual = max(self._virtual, least)
        eligible = [flow for flow in backlogged if flow.start() <= self._virtual]
        return self._flows.take(min(eligible, key=_finish))

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Never: a job in service runs to completion."""
        return False

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Let virtual time grow by the service given, shared by the active flows."""
        weight = self._flows.active_weight(self._virtual)
        self._virtual += round(used_ns * UNIT / weight)

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Settle the flow's charge for what the turn used."""
        self._flows.leave(job)
        self._flows.sweep(self._virtual)

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow."""
        self._flows.add(job, self._virtual, front=True)

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
        """Assert that the flows' counts agree."""
        self._flows.check()


def _finish(flow: Flow) -> tuple[int, int]:
    return flow.start() + flow.length(), flow.jobs[0].number
