"""Flows of fair queueing policies: their tags, and the cost of their turns.

In virtual time, a flow's next job starts at the finish of its last job, but not before
its arrival in an empty flow. Taking a job charges its expected remaining cost to the
flow; the end of its turn corrects the charge to the CPU used. The policies (``scfq``,
``wf2q``, ``two_dfq``) also share their methods, in ``fair``. ``wfq`` keeps its own
tags, as it charges a flow for an overrun before the turn ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job

# Virtual time is an integer: nanoseconds of CPU times UNIT over weight.
UNIT: Final = 1 << 16
_SLACK: Final = 64


class Flow:
    """Backlog and tags of a flow; ``weight`` is that of its latest job's class."""

    __slots__ = ("finish", "floor", "in_service", "jobs", "weight")

    def __init__(self, virtual: int, weight: float) -> None:
        self.jobs: deque[Job] = deque()
        self.finish = virtual
        self.floor = virtual
        self.in_service = 0
        self.weight = weight

    def start(self) -> int:
        """Return the virtual start of the job at the head."""
        return self.finish if self.finish > self.floor else self.floor

    def length(self) -> int:
        """Return the expected remaining cost of the head job, in virtual time."""
        return round(_rest_ns(self.jobs[0]) * UNIT / self.weight)

    def due(self) -> tuple[int, int]:
        """Return the virtual finish of the job at the head, and its number."""
        return self.start() + self.length(), self.jobs[0].number


class Flows:
    """All flows of a policy. Cost: O(1) per call, except for sweeps of idle flows."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._weight = config.weight
        self._flows: dict[str, Flow] = {}
        self._sweep_at = _SLACK
        self.waiting = 0
        self.in_service = 0

    def add(self, job: Job, virtual: int, *, front: bool) -> Flow:
        """Add a job to its flow; return the flow."""
        flow = self._flow(job, virtual)
        if not flow.jobs:
            flow.floor = virtual
            if not flow.in_service:
                flow.weight = self._weight(job)
        if front:
            flow.jobs.appendleft(job)
        else:
            flow.jobs.append(job)
        self.waiting += 1
        return flow

    def _flow(self, job: Job, virtual: int) -> Flow:
        flow = self._flows.get(job.flow)
        if flow is None:
            flow = self._flows[job.flow] = Flow(virtual, self._weight(job))
        return flow

    def take(self, flow: Flow) -> Job:
        """Take the job at the head into service, and charge its flow."""
        start, length = flow.start(), flow.length()
        job = flow.jobs.popleft()
        job.tag = (flow, _rest_ns(job), job.attained_ns)
        flow.finish = start + length
        flow.floor = start
        flow.in_service += 1
        self.waiting -= 1
        self.in_service += 1
        return job

    def leave(self, job: Job) -> Flow:
        """Correct the charge of a turn to the CPU used; return the flow."""
        flow, charged_ns, attained_ns = job.tag
        used_ns = job.attained_ns - attained_ns
        flow.finish += round((used_ns - charged_ns) * UNIT / flow.weight)
        flow.in_service -= 1
        self.in_service -= 1
        settled: Flow = flow
        return settled

    def debit(self, job: Job, used_ns: int, virtual: int) -> Flow:
        """Charge a job's flow for CPU outside of its turns; return the flow."""
        flow = self._flow(job, virtual)
        if flow.jobs:
            flow.finish = flow.start()
        elif not flow.in_service:
            flow.finish = max(flow.finish, virtual)
        flow.finish += round(used_ns * UNIT / flow.weight)
        return flow

    def active_weight(self, virtual: int) -> float:
        """Sum the weights of the flows that fluid GPS would still be serving.

        A flow whose last job was served early is included until virtual time has
        reached that job's finish. Cost: O(f).
        """
        return sum(
            flow.weight
            for flow in self._flows.values()
            if flow.jobs or flow.in_service or flow.finish > virtual
        )

    def sweep(self, virtual: int) -> None:
        """Drop idle flows that finish in the past: they would start as new flows."""
        if len(self._flows) <= self._sweep_at:
            return
        self._flows = {
            key: flow
            for key, flow in self._flows.items()
            if flow.jobs or flow.in_service or flow.finish > virtual
        }
        self._sweep_at = max(_SLACK, 2 * len(self._flows))

    def restart(self) -> int:
        """Drop all flows, as the plane is idle; return the latest finish."""
        latest = max((flow.finish for flow in self._flows.values()), default=0)
        self._flows.clear()
        return latest

    def __iter__(self) -> Iterator[Flow]:
        """Iterate over the flows that have jobs waiting."""
        return (flow for flow in self._flows.values() if flow.jobs)

    def check(self) -> None:
        """Assert that the counts agree with the flows."""
        flows = self._flows.values()
        assert self.waiting == sum(len(flow.jobs) for flow in flows)
        assert self.in_service == sum(flow.in_service for flow in flows)


def _rest_ns(job: Job) -> int:
    """Return a job's expected remaining cost, from its true size if known."""
    expected_ns = job.cost_ns if job.size_ns is None else job.size_ns
    return max(0, expected_ns - job.attained_ns)
