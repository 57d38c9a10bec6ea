"""Weighted fair queueing for jobs whose cost is known only after service."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import ClassVar, TypeAlias

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import IN_SERVICE, Scheduler

# Virtual time is an integer: nanoseconds of CPU times _UNIT over weight.
_UNIT = 1 << 16
# Least number of heap entries or flows before stale ones are dropped.
_SLACK = 64


class _Flow:
    """Backlog of a flow; ``finish`` is the virtual finish of its last job.

    ``floor`` is the virtual time at which a job arrived in the empty queue. The head
    starts at ``finish``, but not before ``floor``. ``entry`` is the flow's entry in the
    heap of waiting flows, None if it has no job there.
    """

    __slots__ = ("entry", "finish", "floor", "in_service", "jobs")

    def __init__(self, virtual: int) -> None:
        self.jobs: deque[Job] = deque()
        self.finish = virtual
        self.floor = virtual
        self.in_service = 0
        self.entry: _Entry | None = None

    def start(self) -> int:
        """Return the virtual start of the job at the head."""
        return self.finish if self.finish > self.floor else self.floor


# Virtual start and number of the head. Numbers differ, so flows are never compared.
_Entry: TypeAlias = tuple[int, int, _Flow]


class Wfq(Scheduler, Foresight):
    """Share the CPU among flows by weight: SFQ(D), corrected by the true cost.

    In virtual time, a flow's next job starts at the finish of its last job, or now if
    the flow was idle. The job with the least virtual start is served. A pick charges
    the estimated remaining cost of the job to its flow, and the end of the turn
    corrects that charge to the CPU used. An overrun is charged as it happens. Wrong
    estimates therefore affect the order of one job, never the long-run shares. A job
    that has run a quantum and is ahead of a waiting flow is preempted.

    Bound (SFQ(D), with costs known at the end of a turn): over any interval in which
    flows i and j are both backlogged, their weighted services differ by at most
    (D + 1)(L_i/w_i + L_j/w_j), where D is the number of seats and L the largest cost.

    Source: Goyal, Vin, Cheng 1996 (SFQ); Jin, Chase, Kaur 2004 (SFQ(D)); the correction
    follows Kubernetes' API Priority and Fairness (KEP-1040). Cost: O(log f) for f
    backlogged flows; idle flows are dropped once virtual time has passed their finish.

    >>> policy = Wfq(SchedulerConfig(weights={"control": 4.0}))
    >>> for n in range(3):
    ...     policy.arrive(Job(number=n, flow="a", cost_ns=100), now_ns=0)
    >>> policy.arrive(Job(number=3, flow="b", cost_ns=100), now_ns=0)
    >>> [policy.pick(0).number for _ in range(4)]
    [0, 3, 1, 2]
    """

    preempts: ClassVar[str] = IN_SERVICE
    shares_by_weight: ClassVar[bool] = True
    foresees: ClassVar[bool] = True
    leave_suffices: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._weight = config.weight
        self._per_ns: dict[str, int] = {}
        self._quantum_ns = self.least_turn_ns = config.quantum_ns
        self._flows: dict[str, _Flow] = {}
        # Waiting flows, by virtual start. A stale entry stays until it reaches the top,
        # so a move costs one push.
        self._order: list[_Entry] = []
        # A flow that the next pick adds to the heap. The end of the turn in progress
        # usually comes first and changes its start, so adding it now would be wasted.
        self._unplaced: _Flow | None = None
        self._virtual = 0
        # The latest finish of a flow without a job in service.
        self._latest = 0
        self._waiting = 0
        self._in_service = 0
        self._sweep_at = _SLACK

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which starts now if it was idle."""
        if not self._waiting and not self._in_service and self._latest > self._virtual:
            # After an idle plane no flow has a claim to earlier service.
            self._virtual = self._latest
        try:
            flow = self._flows[job.flow]
        except KeyError:
            flow = self._open(job.flow)
        self._waiting += 1
        jobs = flow.jobs
        jobs.append(job)
        if len(jobs) == 1:
            # `_place`, inlined for the most frequent case: a flow without an entry.
            flow.floor = virtual = self._virtual
            start = flow.finish if flow.finish > virtual else virtual
            flow.entry = entry = (start, job.number, flow)
            heappush(self._order, entry)

    def pick(self, now_ns: int) -> Job | None:
        """Take the head of the flow with the least virtual start."""
        order, flow = self._order, self._unplaced
        if flow is not None:
            self._unplaced = None
            start = flow.finish if flow.finish > flow.floor else flow.floor
            if order and order[0][0] <= start:
                # Another flow may come first.
                flow.entry = entry = (start, flow.jobs[0].number, flow)
                heappush(order, entry)
                flow = None
        elif not self._waiting:
            return None
        if flow is None:
            while True:
                entry = heappop(order)
                start, _, flow = entry
                if flow.entry is entry:
                    break
            flow.entry = None
        jobs = flow.jobs
        job = jobs.popleft()
        if jobs:
            flow.floor = start
            self._unplaced = flow
        if start > self._virtual:
            self._virtual = start
        self._waiting -= 1
        self._in_service += 1
        flow.in_service += 1
        try:
            per_ns = self._per_ns[job.request_class]
        except KeyError:
            per_ns = self._price(job)
        attained_ns = job.attained_ns
        charged_ns = job.cost_ns - attained_ns if job.cost_ns > attained_ns else 0
        job.tag = (flow, charged_ns, attained_ns, per_ns)
        flow.finish = start + charged_ns * per_ns
        return job

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Return whether the job has had a quantum and is ahead of a waiting flow."""
        if running.attained_ns - running.tag[2] < self._quantum_ns:
            return False
        at_ns = self.outranked_at_ns(running)
        return at_ns is not None and running.attained_ns >= at_ns

    def outranked_at_ns(self, running: Job) -> int | None:
        """Return the CPU at which the job has had a quantum and is ahead of a flow."""
        if not self._waiting:
            return None
        order, unplaced = self._order, self._unplaced
        while order:
            entry = order[0]
            if entry[2].entry is entry:
                break
            heappop(order)
        own, charged_ns, attained_ns, per_ns = running.tag
        if unplaced is own or unplaced is None:
            if not order:
                return None
            least = order[0][0]
        else:
            least = unplaced.start()
            if order and order[0][0] < least:
                least = order[0][0]
        turn_ns = self._quantum_ns
        if (own.floor if own.jobs else self._virtual) <= least:
            # If preempted, the job would restart at its flow's finish, which grows with
            # its turn.
            ahead_ns = (least - own.finish) // per_ns + charged_ns + 1
            if ahead_ns > turn_ns:
                turn_ns = ahead_ns
        at_ns: int = attained_ns + turn_ns
        return at_ns

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Charge the job's flow at once for CPU beyond the estimate."""
        flow, charged_ns, attained_ns, per_ns = job.tag
        turn_ns = job.attained_ns - attained_ns
        if turn_ns > charged_ns:
            job.tag = (flow, turn_ns, attained_ns, per_ns)
            self._charge(flow, (turn_ns - charged_ns) * per_ns)

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Correct the flow's charge to the CPU used in the turn."""
        flow, charged_ns, attained_ns, per_ns = job.tag
        flow.in_service -= 1
        self._in_service -= 1
        excess_ns = job.attained_ns - attained_ns - charged_ns
        if excess_ns:
            flow.finish += excess_ns * per_ns
            if flow is not self._unplaced and flow.jobs:
                self._place(flow)
        if not flow.in_service and flow.finish > self._latest:
            self._latest = flow.finish

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Charge the job's flow, which may be idle."""
        flow = self._flows.get(job.flow) or self._open(job.flow)
        per_ns = self._per_ns.get(job.request_class) or self._price(job)
        if flow.jobs:
            flow.finish = flow.start()
        elif not flow.in_service:
            flow.finish = max(flow.finish, self._virtual)
        self._charge(flow, used_ns * per_ns)
        if not flow.in_service and flow.finish > self._latest:
            self._latest = flow.finish

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow, which pays only for CPU used."""
        flow = self._flows.get(job.flow) or self._open(job.flow)
        if not flow.jobs:
            flow.floor = self._virtual
        self._waiting += 1
        flow.jobs.appendleft(job)
        if flow is not self._unplaced:
            self._place(flow)

    def reconfigure(self, config: SchedulerConfig) -> None:
        """Replace the weights; turns in progress are charged by the former weights."""
        self._weight = config.weight
        self._per_ns = {}

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by flow."""
        return [job for flow in self._flows.values() for job in flow.jobs]

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that flows, heap and counts are consistent."""
        flows = self._flows.values()
        placed = {id(entry) for entry in self._order}
        for flow in flows:
            if flow.jobs and flow is not self._unplaced:
                place = flow.start(), flow.jobs[0].number, flow
                assert flow.entry == place, "a flow is misplaced"
                assert id(flow.entry) in placed, "a flow is lost"
            else:
                assert flow.entry is None
        assert self._waiting == sum(len(flow.jobs) for flow in flows)
        assert self._in_service == sum(flow.in_service for flow in flows)
        assert all(flow.in_service >= 0 for flow in flows)

    def _price(self, job: Job) -> int:
        """Return the virtual time that a nanosecond costs the job's class."""
        per_ns = max(1, round(_UNIT / self._weight(job)))
        self._per_ns[job.request_class] = per_ns
        return per_ns

    def _place(self, flow: _Flow) -> None:
        """Queue the flow at the start of its head, in place of any earlier entry."""
        moved = flow.entry is not None
        start = flow.finish if flow.finish > flow.floor else flow.floor
        flow.entry = entry = (start, flow.jobs[0].number, flow)
        heappush(self._order, entry)
        if moved and len(self._order) > 2 * self._waiting + _SLACK:
            self._order = [it for it in self._order if it is it[2].entry]
            heapify(self._order)

    def _charge(self, flow: _Flow, amount: int) -> None:
        flow.finish += amount
        if flow.jobs and flow is not self._unplaced:
            self._place(flow)

    def _open(self, name: str) -> _Flow:
        """Create a flow; drop idle flows that finish before the present virtual time.

        A dropped flow would start now, as a new flow does.
        """
        if len(self._flows) > self._sweep_at:
            self._flows = {
                key: flow
                for key, flow in self._flows.items()
                if flow.jobs or flow.in_service or flow.finish > self._virtual
            }
            self._sweep_at = max(_SLACK, 2 * len(self._flows))
        self._flows[name] = flow = _Flow(self._virtual)
        return flow
