"""Weighted fair queuing for servers that learn a job's cost only by serving it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import ClassVar

from schedulers.heap import Heap
from schedulers.job import Job
from schedulers.scheduler import IN_SERVICE, SchedulerConfig

# Virtual time is an integer: nanoseconds of CPU times _UNIT over weight.
_UNIT = 1 << 16


class _Flow:
    """One flow's backlog; ``finish`` is where its last job will end, in virtual time.

    ``floor`` is the virtual time at which a job came to its empty queue: the head
    starts where the last job finishes, but not before that.
    """

    __slots__ = ("finish", "floor", "in_service", "jobs")

    def __init__(self, virtual: int) -> None:
        self.jobs: deque[Job] = deque()
        self.finish = virtual
        self.floor = virtual
        self.in_service = 0

    def start(self) -> int:
        """Return the virtual start of the job at the head."""
        return self.finish if self.finish > self.floor else self.floor


class Wfq:
    """Share the CPU among flows by weight: SFQ(D), corrected by the true cost.

    A flow's next job starts, in virtual time, where its last one finished, or now if
    the flow was idle; the job with the least virtual start is served. A pick charges
    the estimated rest of the job to its flow, and the end of the turn corrects that
    charge to the CPU time really used (an overrun as soon as it happens): so wrong
    estimates distort order for one job and never the long-run shares. A job that has
    run a quantum and has got ahead of a waiting flow is preempted in its favour.

    Bound (SFQ(D), with costs known at the end of a turn): over any interval in which
    flows i and j are both backlogged, their weighted services differ by at most
    (D + 1)(L_i/w_i + L_j/w_j), where D is the number of seats and L the largest cost.

    Source: Goyal, Vin, Cheng 1996 (SFQ); Jin, Chase, Kaur 2004 (SFQ(D)); the correction
    follows Kubernetes' API Priority and Fairness (KEP-1040). Cost: O(log f) for f
    backlogged flows; idle flows are forgotten once virtual time has passed them, and
    all of them when the plane idles.

    >>> policy = Wfq(SchedulerConfig(weights={"control": 4.0}))
    >>> for n in range(3):
    ...     policy.arrive(Job(number=n, flow="a", cost_ns=100), now_ns=0)
    >>> policy.arrive(Job(number=3, flow="b", cost_ns=100), now_ns=0)
    >>> [policy.pick(0).number for _ in range(4)]
    [0, 3, 1, 2]
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = True
    may_starve: ClassVar[bool] = False
    preempts: ClassVar[str] = IN_SERVICE
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: SchedulerConfig) -> None:
        self._weight = config.weight
        self._per_ns: dict[str, int] = {}
        self._quantum_ns = config.quantum_ns
        self._flows: dict[str, _Flow] = {}
        self._backlogged: Heap[_Flow] = Heap()
        self._virtual = 0
        self._waiting = 0
        self._in_service = 0
        self._sweep_at = 64

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which starts now if it was idle."""
        if not self._waiting and not self._in_service and self._flows:
            # The plane was idle: nobody is owed anything.
            self._virtual = max(flow.finish for flow in self._flows.values())
            self._flows.clear()
        flow = self._flow(job)
        flow.jobs.append(job)
        self._waiting += 1
        if len(flow.jobs) == 1:
            self._backlogged.put(flow, flow.start(), job.number)

    def pick(self, now_ns: int) -> Job | None:
        """Take the head of the flow with the least virtual start."""
        if not self._waiting:
            return None
        flow = self._backlogged.pop()
        job = flow.jobs.popleft()
        self._waiting -= 1
        self._in_service += 1
        flow.in_service += 1
        start = flow.start()
        if start > self._virtual:
            self._virtual = start
        per_ns = self._per_ns.get(job.request_class)
        if per_ns is None:
            per_ns = max(1, round(_UNIT / self._weight(job)))
            self._per_ns[job.request_class] = per_ns
        attained_ns = job.attained_ns
        charged_ns = max(0, job.cost_ns - attained_ns)
        job.tag = (start, charged_ns, attained_ns, per_ns)
        flow.finish = start + charged_ns * per_ns
        if flow.jobs:
            flow.floor = start
            self._backlogged.put(flow, flow.finish, flow.jobs[0].number)
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Say whether a flow waits that the job, a quantum on, has got ahead of."""
        _, charged_ns, attained_ns, per_ns = running.tag
        used_ns = running.attained_ns - attained_ns
        if used_ns < self._quantum_ns or not self._waiting:
            return False
        first = self._backlogged.first()
        assert first is not None
        # Where the job would start if it were suspended now.
        own = self._flows[running.flow]
        finish = own.finish - (charged_ns - used_ns) * per_ns
        start: int = max(finish, own.floor if own.jobs else self._virtual)
        return first.start() < start

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Charge the job's flow at once for what exceeds the estimate."""
        start, charged_ns, attained_ns, per_ns = job.tag
        turn_ns = job.attained_ns - attained_ns
        if turn_ns > charged_ns:
            job.tag = (start, turn_ns, attained_ns, per_ns)
            self._charge(self._flows[job.flow], (turn_ns - charged_ns) * per_ns)

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Give back what the turn was charged beyond what it used."""
        flow = self._flows[job.flow]
        _, charged_ns, attained_ns, per_ns = job.tag
        turn_ns = job.attained_ns - attained_ns
        if turn_ns != charged_ns:
            self._charge(flow, (turn_ns - charged_ns) * per_ns)
        flow.in_service -= 1
        self._in_service -= 1
        if len(self._flows) > self._sweep_at:
            self._sweep()

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow, which pays only what was used."""
        flow = self._flow(job)
        flow.jobs.appendleft(job)
        self._waiting += 1
        self._backlogged.put(flow, flow.start(), job.number)

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
        flows = self._flows.values()
        backlogged = [flow for flow in flows if flow.jobs]
        assert len(backlogged) == len(self._backlogged)
        for flow in backlogged:
            assert self._backlogged.key(flow) == flow.start(), "a flow is misplaced"
        assert self._waiting == sum(len(flow.jobs) for flow in backlogged)
        assert self._in_service == sum(flow.in_service for flow in flows)
        assert all(flow.in_service >= 0 for flow in flows)

    def _charge(self, flow: _Flow, amount: int) -> None:
        flow.finish += amount
        if flow.jobs:
            self._backlogged.put(flow, flow.start(), flow.jobs[0].number)

    def _flow(self, job: Job) -> _Flow:
        """Return the flow of a job that comes to wait; its head starts now or later."""
        flow = self._flows.get(job.flow)
        if flow is None:
            flow = self._flows[job.flow] = _Flow(self._virtual)
        elif not flow.jobs:
            flow.floor = self._virtual
        return flow

    def _sweep(self) -> None:
        """Forget the idle flows that virtual time has passed: they would start now."""
        self._flows = {
            key: flow
            for key, flow in self._flows.items()
            if flow.jobs or flow.in_service or flow.finish > self._virtual
        }
        self._sweep_at = max(64, 2 * len(self._flows))
