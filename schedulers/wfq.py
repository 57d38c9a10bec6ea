"""Weighted fair queuing for servers that learn a job's cost only by serving it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import ClassVar

from sortedcontainers import SortedKeyList

from schedulers.job import Job
from schedulers.scheduler import SchedulerConfig

# Virtual time is an integer: nanoseconds of CPU times _UNIT over weight.
_UNIT = 1 << 16


class _Flow:
    """One flow's backlog and the virtual start of the job at its head."""

    __slots__ = ("in_service", "jobs", "key", "start")

    def __init__(self, key: str) -> None:
        self.key = key
        self.jobs: deque[Job] = deque()
        self.start = 0
        self.in_service = 0


class _Turn:
    """A job in service: what its flow was charged, and where its turn began."""

    __slots__ = ("attained_ns", "charged_ns", "per_ns", "start")

    def __init__(self, start: int, charged_ns: int, attained_ns: int, per_ns: int):
        self.start = start
        self.charged_ns = charged_ns
        self.attained_ns = attained_ns
        self.per_ns = per_ns


class Wfq:
    """Share the CPU among flows by weight: SFQ(D), corrected by the true cost.

    A flow's next job starts, in virtual time, where its last one finished, or now if
    the flow was idle; the job with the least virtual start is served. A pick charges
    the estimated rest of the job to its flow, and the end of the turn corrects that
    charge to the CPU time really used, so wrong estimates distort order for one job
    and never the long-run shares. A job that has run a quantum and has got ahead of a
    waiting flow is preempted in that flow's favour.

    Bound (SFQ(D), with costs known at the end of a turn): over any interval in which
    flows i and j are both backlogged, their weighted services differ by at most
    (D + 1)(L_i/w_i + L_j/w_j), where D is the number of seats and L the largest cost.

    Source: Goyal, Vin, Cheng 1996 (SFQ); Jin, Chase, Kaur 2004 (SFQ(D)); the correction
    follows Kubernetes' API Priority and Fairness (KEP-1040). Cost: O(log f) for f
    backlogged flows; idle flows are forgotten once virtual time has passed them.

    >>> policy = Wfq(SchedulerConfig(weights={"control": 4.0}))
    >>> for n in range(3):
    ...     policy.arrive(Job(number=n, flow="a", cost_ns=100), now_ns=0)
    >>> policy.arrive(Job(number=3, flow="b", cost_ns=100), now_ns=0)
    >>> [policy.pick(0).number for _ in range(4)]
    [0, 3, 1, 2]
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._weight = config.weight
        self._quantum_ns = config.quantum_ns
        self._flows: dict[str, _Flow] = {}
        self._backlogged: SortedKeyList[_Flow] = SortedKeyList(key=_by_start)
        self._virtual_ns = 0
        self._waiting = 0
        self._in_service = 0
        self._sweep_at = 64

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which starts now if it was idle."""
        self._enqueue(self._flow(job), job, front=False)

    def pick(self, now_ns: int) -> Job | None:
        """Take the head of the flow with the least virtual start."""
        if not self._backlogged:
            return None
        flow: _Flow = self._backlogged.pop(0)
        job = flow.jobs.popleft()
        self._waiting -= 1
        self._in_service += 1
        flow.in_service += 1
        self._virtual_ns = max(self._virtual_ns, flow.start)
        per_ns = max(1, round(_UNIT / self._weight(job)))
        charged_ns = max(0, job.cost_ns - job.attained_ns)
        job.tag = _Turn(flow.start, charged_ns, job.attained_ns, per_ns)
        flow.start += charged_ns * per_ns
        if flow.jobs:
            self._backlogged.add(flow)
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a flow waits that the job, a quantum on, has got ahead of."""
        turn: _Turn = running.tag
        used_ns = running.attained_ns - turn.attained_ns
        if not self._backlogged or used_ns < self._quantum_ns:
            return False
        first: _Flow = self._backlogged[0]
        return first.start < turn.start + used_ns * turn.per_ns

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Nothing yet: the flow's charge is corrected when the turn ends."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Correct the flow's charge to what the turn used; forget it if it may be."""
        flow = self._flows[job.flow]
        turn: _Turn = job.tag
        if flow.jobs:
            self._backlogged.remove(flow)
        used_ns = job.attained_ns - turn.attained_ns
        flow.start += (used_ns - turn.charged_ns) * turn.per_ns
        if flow.jobs:
            self._backlogged.add(flow)
        flow.in_service -= 1
        self._in_service -= 1
        if not self._waiting and not self._in_service and done:
            starts = (known.start for known in self._flows.values())
            self._virtual_ns = max(self._virtual_ns, *starts)
            self._flows.clear()
        elif len(self._flows) > self._sweep_at:
            self._sweep()

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow, which pays only what was used."""
        self._enqueue(self._flow(job), job, front=True)

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return None: virtual time moves with service, not with the clock."""
        return None

    def waiting(self) -> Iterator[Job]:
        """Iterate by flow."""
        for flow in self._backlogged:
            yield from flow.jobs

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that flows, backlog and counts tell the same story."""
        backlogged = [flow for flow in self._flows.values() if flow.jobs]
        assert len(backlogged) == len(self._backlogged)
        assert all(flow in self._backlogged for flow in backlogged)
        assert self._waiting == sum(len(flow.jobs) for flow in backlogged)
        in_service = sum(flow.in_service for flow in self._flows.values())
        assert self._in_service == in_service

    def _enqueue(self, flow: _Flow, job: Job, *, front: bool) -> None:
        self._waiting += 1
        if flow.jobs and not front:
            flow.jobs.append(job)
            return
        if flow.jobs:
            self._backlogged.remove(flow)
        flow.jobs.appendleft(job)
        self._backlogged.add(flow)

    def _flow(self, job: Job) -> _Flow:
        """Return the job's flow; one that was idle starts now."""
        flow = self._flows.get(job.flow)
        if flow is None:
            flow = self._flows[job.flow] = _Flow(job.flow)
        if not flow.jobs and not flow.in_service:
            flow.start = max(flow.start, self._virtual_ns)
        return flow

    def _sweep(self) -> None:
        """Forget the idle flows that virtual time has passed: they would start now."""
        self._flows = {
            key: flow
            for key, flow in self._flows.items()
            if flow.jobs or flow.in_service or flow.start > self._virtual_ns
        }
        self._sweep_at = max(64, 2 * len(self._flows))


def _by_start(flow: _Flow) -> tuple[int, int]:
    return flow.start, flow.jobs[0].number
