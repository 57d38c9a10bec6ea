"""Hadoop's FairCallQueue: queues by recent cost, and a weighted round robin."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import chain
from typing import ClassVar, Final

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler

# A flow with at least this share of the recent cost uses queue 3, 2 or 1; else 0.
_THRESHOLDS: Final = ((3, 0.5), (2, 0.25), (1, 0.125))
# Number of jobs served from each queue before the next queue's turn.
_WEIGHTS: Final = (8, 4, 2, 1)


class FairCallQueue(Scheduler, Foresight):
    """Serve four queues 8:4:2:1; a flow's recent share of the cost decides its queue.

    The cost of each flow (option ``by_count`` = 1: its number of jobs, as in Hadoop's
    first version) is halved every ``decay_ns`` (option, 5 s). A flow with half of the
    total uses the last queue, with a quarter the third, with an eighth the second. The
    multiplexer counts jobs, not their cost, and skips empty queues. The jobs of a flow
    that changes queues may be served out of order.

    Source: Hadoop's ``DecayRpcScheduler``, ``FairCallQueue`` and
    ``WeightedRoundRobinMultiplexer`` (HADOOP-9640, HADOOP-10279). Cost: O(1), and O(f)
    per decay for f flows.

    >>> policy = FairCallQueue(SchedulerConfig(options={"by_count": 1}))
    >>> for n, flow in enumerate("aaaab"):
    ...     policy.arrive(Job(number=n, flow=flow), now_ns=0)
    >>> [policy.pick(0).flow for _ in range(5)]
    ['a', 'b', 'a', 'a', 'a']
    """

    keeps_flow_order: ClassVar[bool] = False
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ("by_count", "decay_ns")

    def __init__(self, config: SchedulerConfig) -> None:
        self._by_count = config.option("by_count", 0) > 0
        self._decay_ns = round(config.option("decay_ns", 5_000_000_000, least=1))
        self._cost: dict[str, float] = {}
        self._total = 0.0
        self._decays_ns = 0
        self._queues: tuple[deque[Job], ...] = tuple(deque() for _ in _WEIGHTS)
        self._back: deque[Job] = deque()
        self._turn = 0
        self._left = _WEIGHTS[0]

    def arrive(self, job: Job, now_ns: int) -> None:
        """Add the job's cost to its flow, and append it to the flow's queue."""
        self._decay(now_ns)
        cost = 1.0 if self._by_count else float(max(1, job.cost_ns))
        share = self._cost.get(job.flow, 0.0) / self._total if self._total else 0.0
        self._cost[job.flow] = self._cost.get(job.flow, 0.0) + cost
        self._total += cost
        queue = next((q for q, least in _THRESHOLDS if share >= least), 0)
        self._queues[queue].append(job)

    def pick(self, now_ns: int) -> Job | None:
        """Take a resumed job, else the head of the queue whose turn it is."""
        if self._back:
            return self._back.popleft()
        if not any(self._queues):
            return None
        while not (self._left and self._queues[self._turn]):
            self._turn = (self._turn + 1) % len(_WEIGHTS)
            self._left = _WEIGHTS[self._turn]
        self._left -= 1
        return self._queues[self._turn].popleft()

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Replace the expected cost by the true cost."""
        if not done or self._by_count or job.flow not in self._cost:
            return
        change = job.attained_ns - max(1, job.cost_ns)
        settled = max(0.0, self._cost[job.flow] + change)
        self._total += settled - self._cost[job.flow]
        self._cost[job.flow] = settled

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Add CPU to the flow's cost, if the flow is still recorded."""
        if not self._by_count and job.flow in self._cost:
            self._cost[job.flow] += used_ns
            self._total += used_ns

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job before all jobs that were never served."""
        self._back.append(job)

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by queue."""
        return [*self._back, *chain.from_iterable(self._queues)]

    def __len__(self) -> int:
        return len(self._back) + sum(map(len, self._queues))

    def check(self) -> None:
        """Assert that costs sum to the total, and none is negligible."""
        assert abs(sum(self._cost.values()) - self._total) <= 1e-6 * (1 + self._total)
        assert 0 <= self._left <= _WEIGHTS[self._turn]

    def _decay(self, now_ns: int) -> None:
        """Halve every cost once per elapsed period; drop negligible costs."""
        periods = now_ns // self._decay_ns - self._decays_ns
        if periods <= 0:
            return
        self._decays_ns += periods
        factor = 0.5 ** min(periods, 1_000)
        costs = {flow: cost * factor for flow, cost in self._cost.items()}
        self._cost = {flow: cost for flow, cost in costs.items() if cost >= 1}
        self._total = sum(self._cost.values())
