"""Exact weighted fair queueing: jobs in the order in which GPS would finish them."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler
from schedulers.orders.heap import Heap

# Virtual time is an integer: nanoseconds times _UNIT over weight.
_UNIT = 1 << 16


class _Flow:
    """A flow in the fluid system: the finish of its last job, and its weight."""

    __slots__ = ("finish", "weight")

    def __init__(self, weight: float) -> None:
        self.finish = 0
        self.weight = weight


class GpsWfq(Scheduler, Foresight):
    """Serve the job that would finish first if all flows were served at once.

    Generalised processor sharing (GPS) gives every backlogged flow its weighted share
    of ``seats`` servers at every instant. Virtual time is that of GPS, computed exactly
    from the clock, event by event. Jobs are tagged with their fluid finish at arrival
    and served in that order, without preemption. With one server, no job ends later
    than under GPS by more than one largest job.

    Needs the size of each job at arrival: true (``size_ns``, in the model world) or
    expected. Charges are not corrected to the true cost, so a flow gains by
    understating its costs. The broker's ``wfq`` is therefore another algorithm.

    Source: Demers, Keshav, Shenker 1989; Parekh and Gallager 1993. Cost: O(log n), and
    O(f) in the worst case to advance virtual time past f flows that end at once.

    >>> policy = GpsWfq(SchedulerConfig())
    >>> for n, (flow, cost_ns) in enumerate([("a", 300), ("a", 300), ("b", 400)]):
    ...     policy.arrive(Job(number=n, flow=flow, cost_ns=cost_ns), now_ns=0)
    >>> [policy.pick(0).number for _ in range(3)]
    [0, 2, 1]
    """

    shares_by_weight: ClassVar[bool] = True
    leave_suffices: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._weight = config.weight
        self._rate = config.seats
        self._queue: list[tuple[int, int, Job]] = []
        # The flows that GPS is serving, by the virtual time at which they run empty.
        self._fluid: Heap[str] = Heap()
        self._flows: dict[str, _Flow] = {}
        self._fluid_weight = 0.0
        self._virtual = 0
        self._seen_ns = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Tag the job with its fluid finish, and queue it in that order."""
        self._advance(now_ns)
        flow = self._flows.get(job.flow)
        if flow is None:
            flow = self._flows[job.flow] = _Flow(self._weight(job))
            flow.finish = self._virtual
            self._fluid_weight += flow.weight
        size_ns = job.cost_ns if job.size_ns is None else job.size_ns
        flow.finish += round(size_ns * _UNIT / flow.weight)
        self._fluid.put(job.flow, flow.finish, job.number)
        job.tag = flow.finish
        heapq.heappush(self._queue, (flow.finish, job.number, job))

    def pick(self, now_ns: int) -> Job | None:
        """Take the job with the least fluid finish."""
        return heapq.heappop(self._queue)[2] if self._queue else None

    def resume(self, job: Job, now_ns: int) -> None:
        """Add the job again, by its tag."""
        heapq.heappush(self._queue, (job.tag, job.number, job))

    def resize(self, seats: int, now_ns: int) -> None:
        """Set the rate of virtual time to ``seats`` servers."""
        self._advance(now_ns)
        self._rate = seats

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs in no order."""
        return [job for _, _, job in self._queue]

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Assert that the fluid system holds the right flows."""
        assert set(self._fluid) == set(self._flows)
        total = sum(flow.weight for flow in self._flows.values())
        assert abs(total - self._fluid_weight) < 1e-6, (total, self._fluid_weight)

    def _advance(self, now_ns: int) -> None:
        """Advance virtual time to now; remove flows when GPS has served them."""
        left_ns = now_ns - self._seen_ns
        self._seen_ns = now_ns
        while self._fluid:
            first = self._fluid.first()
            assert first is not None
            flow = self._flows[first]
            need_ns = (flow.finish - self._virtual) * self._fluid_weight
            need_ns /= _UNIT * self._rate
            if need_ns > left_ns:
                grown = left_ns * _UNIT * self._rate / self._fluid_weight
                self._virtual += int(grown)
                return
            left_ns -= int(need_ns)
            self._virtual = flow.finish
            self._fluid.pop()
            del self._flows[first]
            self._fluid_weight -= flow.weight
        self._fluid_weight = 0.0
