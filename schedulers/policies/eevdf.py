"""Earliest eligible virtual deadline first: Linux' scheduler since 6.6."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job
from schedulers.contract.scheduler import IN_SERVICE, Scheduler

_UNIT = 1 << 16
# Largest number of idle flows whose debts are kept; the oldest are dropped first.
_IDLE_FLOWS = 1024


class _Flow:
    """A flow: its service divided by its weight, and its jobs."""

    __slots__ = ("had", "in_service", "jobs", "slice", "weight")

    def __init__(self, weight: float, slice_ns: int) -> None:
        self.jobs: deque[Job] = deque()
        self.weight = weight
        self.had = 0
        self.slice = round(slice_ns * _UNIT / weight)
        self.in_service = 0


class Eevdf(Scheduler):
    """Serve the eligible flow with the earliest virtual deadline.

    A flow's lag is its weighted fair share less its service. A flow with lag >= 0 is
    eligible, and its deadline is one slice after its service, in virtual time. A class
    with a *short slice* (option ``slice_ns.CLASS``, default: the quantum) is served
    sooner, without a larger share. A flow that returns from idle keeps its debt and
    gets no credit for the idle time. A running job is preempted after a quantum if an
    eligible flow has an earlier deadline, or if its own flow is no longer eligible.

    Bound: while flows stay backlogged, no lag exceeds the largest slice or quantum (and
    the length of an uninterruptible piece).

    Source: Stoica and Abdel-Wahab 1995; Linux ``kernel/sched/fair.c``. Cost: O(f) per
    pick and per ``outranks``, for f active flows.

    >>> policy = Eevdf(SchedulerConfig(options={"slice_ns.control": 10_000}))
    >>> policy.arrive(Job(number=0, request_class="data", flow="data"), now_ns=0)
    >>> policy.arrive(Job(number=1, request_class="control", flow="c"), now_ns=0)
    >>> policy.pick(0)
    <control #1 level=0 c>
    """

    preempts: ClassVar[str] = IN_SERVICE
    shares_by_weight: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ("slice_ns.",)

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._quantum_ns = config.quantum_ns
        # Flows with a job waiting or in service, in order of arrival.
        self._active: dict[str, _Flow] = {}
        # Service of idle flows at the time they became idle.
        self._idle: dict[str, int] = {}
        self._waiting = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which has no credit if it was idle."""
        self._flow(job, credit=0).jobs.append(job)
        self._waiting += 1

    def pick(self, now_ns: int) -> Job | None:
        """Take the head of the eligible flow with the earliest deadline."""
        if not self._waiting:
            return None
        flow = self._best(self._virtual())
        job = flow.jobs.popleft()
        self._waiting -= 1
        flow.in_service += 1
        job.tag = job.attained_ns
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether the job has had a quantum and another flow ranks first."""
        if not self._waiting or running.attained_ns - running.tag < self._quantum_ns:
            return False
        virtual = self._virtual()
        own = self._active[running.flow]
        best = self._best(virtual)
        if best is own:
            return False
        standing = _rank(own, virtual, running.number)
        return _rank(best, virtual, best.jobs[0].number) < standing

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Add CPU to the flow's service."""
        flow = self._active[job.flow]
        flow.had += round(used_ns * _UNIT / flow.weight)

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Add CPU to the service of the job's flow, if the flow is still recorded."""
        had = round(used_ns * _UNIT / self._config.weight(job))
        flow = self._active.get(job.flow)
        if flow is not None:
            flow.had += had
        elif job.flow in self._idle:
            self._idle[job.flow] += had

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Move the flow to the idle flows after its last job; keep its service."""
        flow = self._active[job.flow]
        flow.in_service -= 1
        if flow.jobs or flow.in_service:
            return
        del self._active[job.flow]
        if done and not self._active:
            self._idle.clear()
        else:
            self._idle[job.flow] = flow.had
            if len(self._idle) > _IDLE_FLOWS:
                del self._idle[next(iter(self._idle))]

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow, which keeps up to a slice of credit."""
        self._flow(job, credit=1).jobs.appendleft(job)
        self._waiting += 1

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by flow."""
        return [job for flow in self._active.values() for job in flow.jobs]

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that active flows have jobs, and idle ones have none."""
        flows = self._active.values()
        assert all(flow.jobs or flow.in_service for flow in flows)
        assert self._waiting == sum(len(flow.jobs) for flow in flows)
        assert not set(self._idle) & set(self._active)

    def lags_ns(self) -> dict[str, float]:
        """Return the lag of each active flow in nanoseconds of service."""
        virtual = self._virtual()
        return {
            key: (virtual - flow.had) * flow.weight / _UNIT
            for key, flow in self._active.items()
        }

    def _virtual(self) -> int:
        """Return virtual time: the weighted mean of the active flows' services."""
        flows = self._active.values()
        total = sum(flow.weight for flow in flows)
        if not total:
            return 0
        return round(sum(flow.had * flow.weight for flow in flows) / total)

    def _best(self, virtual: int) -> _Flow:
        """Return the waiting flow that ranks first."""
        waiting = (flow for flow in self._active.values() if flow.jobs)
        return min(waiting, key=lambda flow: _rank(flow, virtual, flow.jobs[0].number))

    def _flow(self, job: Job, *, credit: int) -> _Flow:
        flow = self._active.get(job.flow)
        if flow is None:
            name = f"slice_ns.{job.request_class}"
            slice_ns = round(self._config.option(name, self._quantum_ns, least=1))
            flow = _Flow(self._config.weight(job), slice_ns)
            had = self._idle.pop(job.flow, 0)
            flow.had = max(had, self._virtual() - credit * flow.slice)
            self._active[job.flow] = flow
        return flow


def _rank(flow: _Flow, virtual: int, number: int) -> tuple[bool, int, int]:
    """Order eligible flows by deadline; after them, the others by service."""
    if flow.had <= virtual:
        return False, flow.had + flow.slice, number
    return True, flow.had, number
