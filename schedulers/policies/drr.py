"""Deficit round robin: fair shares at constant cost, and in bursts."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler


class _Flow:
    """Backlog of a flow and its remaining credit in this round.

    ``granted`` is true once its turn has begun and a quantum was added to its credit.
    """

    __slots__ = ("credit_ns", "granted", "in_service", "jobs", "quantum_ns")

    def __init__(self, quantum_ns: int) -> None:
        self.jobs: deque[Job] = deque()
        self.quantum_ns = quantum_ns
        self.credit_ns = 0
        self.granted = False
        self.in_service = 0


class Drr(Scheduler, Foresight):
    """Serve flows in turn, each until its quantum times weight is used up.

    Surplus round robin: a flow is served while it has credit, and the overrun of its
    last job is subtracted from its next round. No cost need be known in advance. A flow
    that becomes idle keeps its debt, never its credit. Two backlogged flows' services
    per quantum differ by at most one round and two of the largest jobs.
    The option ``quantum_ns`` (default 1 ms) should exceed the cost of nearly every job;
    larger ones take several rounds.

    Source: Shreedhar and Varghese 1996; Adiseshu, Parulkar, Varghese 1996 (surplus).
    Cost: O(1) per pick if no job costs more than a quantum.

    >>> policy = Drr(SchedulerConfig(options={"quantum_ns": 200}))
    >>> for n, flow in enumerate("aaabbb"):
    ...     policy.arrive(Job(number=n, flow=flow, cost_ns=100), now_ns=0)
    >>> [policy.pick(0).flow for _ in range(6)]
    ['a', 'a', 'b', 'b', 'a', 'b']
    """

    shares_by_weight: ClassVar[bool] = True
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ("quantum_ns",)

    def __init__(self, config: SchedulerConfig) -> None:
        self._quantum_ns = round(config.option("quantum_ns", 1_000_000, least=1))
        self._weight = config.weight
        self._flows: dict[str, _Flow] = {}
        self._round: deque[_Flow] = deque()
        self._waiting = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which joins the round last if it was idle."""
        flow = self._flow(job)
        flow.jobs.append(job)
        self._enter(flow)

    def pick(self, now_ns: int) -> Job | None:
        """Take the next job of the first flow in the round that has credit."""
        if not self._waiting:
            return None
        flow = self._next_flow()
        job = flow.jobs.popleft()
        self._waiting -= 1
        flow.in_service += 1
        charged_ns = max(0, job.cost_ns - job.attained_ns)
        job.tag = (charged_ns, job.attained_ns)
        flow.credit_ns -= charged_ns
        if not flow.jobs:
            self._round.popleft()
            flow.granted = False
            flow.credit_ns = min(flow.credit_ns, 0)
        return job

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Subtract CPU from the flow's credit, unless no other flow waits."""
        if job.flow in self._flows or self._round:
            self._flow(job).credit_ns -= used_ns

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Correct the charge to the CPU used; drop a flow without debt."""
        flow = self._flows[job.flow]
        charged_ns, attained_ns = job.tag
        flow.credit_ns += charged_ns - (job.attained_ns - attained_ns)
        flow.in_service -= 1
        if not flow.jobs and not flow.in_service:
            flow.credit_ns = min(flow.credit_ns, 0)
            if flow.credit_ns == 0 or not self._round:
                del self._flows[job.flow]

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow."""
        flow = self._flow(job)
        flow.jobs.appendleft(job)
        self._enter(flow)

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by flow, in the order of the round."""
        return [job for flow in self._round for job in flow.jobs]

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that the round holds exactly the flows with jobs."""
        backlogged = [flow for flow in self._flows.values() if flow.jobs]
        assert len(backlogged) == len(self._round)
        assert all(flow in self._round for flow in backlogged)
        assert self._waiting == sum(len(flow.jobs) for flow in backlogged)

    def _next_flow(self) -> _Flow:
        """Return the next flow with credit; end the turns of flows without credit."""
        while True:
            flow = self._round[0]
            if not flow.granted:
                flow.granted = True
                flow.credit_ns += flow.quantum_ns
            if flow.credit_ns > 0:
                return flow
            flow.granted = False
            self._round.rotate(-1)

    def _flow(self, job: Job) -> _Flow:
        flow = self._flows.get(job.flow)
        if flow is None:
            quantum_ns = max(1, round(self._quantum_ns * self._weight(job)))
            flow = self._flows[job.flow] = _Flow(quantum_ns)
        return flow

    def _enter(self, flow: _Flow) -> None:
        self._waiting += 1
        if len(flow.jobs) == 1:
            self._round.append(flow)
