"""Two-dimensional fair queueing: small and large requests on different seats."""

from __future__ import annotations

import heapq

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job
from schedulers.orders.fair import FairQueue
from schedulers.orders.flows import UNIT


class TwoDfq(FairQueue):
    """Serve fairly, and spread requests over the seats by their cost.

    WFQ over several seats is bursty: large requests may occupy all seats at once, and
    small requests wait for all of them. Here a request becomes eligible earlier on high
    seats, in proportion to its cost: request r is eligible on seat i of n once virtual
    time reaches S(r) - (i/n) cost(r). Large requests therefore gather on the high
    seats, and the low seats stay free for small requests. The eligible request with the
    least virtual finish is served; if none is eligible, the request closest to it.

    Source: Mace et al. 2016 (2DFQ, SIGCOMM). Cost: O(f) per pick for f backlogged
    flows.

    >>> policy = TwoDfq(SchedulerConfig(seats=2))
    >>> for n, (flow, cost_ns) in enumerate([("dear", 900), ("cheap", 10)] * 2):
    ...     policy.arrive(Job(number=n, flow=flow, cost_ns=cost_ns), now_ns=0)
    >>> [policy.pick(0).flow for _ in range(2)]
    ['cheap', 'dear']
    """

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self._seats = config.seats
        self._free = list(range(config.seats))
        self._seat_of: dict[int, int] = {}
        self._seen_ns = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which starts now if it was idle."""
        self._advance(now_ns)
        super().arrive(job, now_ns)

    def pick(self, now_ns: int) -> Job | None:
        """Take the eligible head with the least finish, for the lowest free seat."""
        if not self._flows.waiting:
            return None
        self._advance(now_ns)
        # A borrowed seat is used after the plane's own seats, and counts as the last.
        seat = heapq.heappop(self._free) if self._free else len(self._seat_of)
        place = min(seat, self._seats - 1)
        ready = [
            (flow.start() - flow.length() * place // self._seats, flow.due(), flow)
            for flow in self._flows
        ]
        self._virtual = max(self._virtual, min(at for at, _, _ in ready))
        flow = min(
            ((finish, flow) for at, finish, flow in ready if at <= self._virtual),
            key=lambda pair: pair[0],
        )[1]
        job = self._flows.take(flow)
        self._seat_of[job.number] = seat
        return job

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Charge the job's flow, which may be idle."""
        self._advance(now_ns)
        super().debit(job, used_ns, now_ns)

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Free the seat, and correct the flow's charge to the CPU used."""
        self._advance(now_ns)
        heapq.heappush(self._free, self._seat_of.pop(job.number))
        super().leave(job, now_ns, done=done)

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow."""
        self._advance(now_ns)
        super().resume(job, now_ns)

    def resize(self, seats: int, now_ns: int) -> None:
        """Set the number of seats; when shrinking, excess seats count as the last.

        The lowest free seat is taken first, so excess seats fall out of use.
        """
        self._advance(now_ns)
        for seat in range(len(self._free) + len(self._seat_of), seats):
            heapq.heappush(self._free, seat)
        self._seats = seats

    def check(self) -> None:
        """Assert that seats and flows are consistent."""
        super().check()
        seats = sorted([*self._free, *self._seat_of.values()])
        assert seats == list(range(len(seats))), seats
        assert len(seats) >= self._seats
        assert self._flows.in_service == len(self._seat_of)

    def _advance(self, now_ns: int) -> None:
        """Advance virtual time by the service of the used seats to the active flows."""
        elapsed_ns = now_ns - self._seen_ns
        self._seen_ns = now_ns
        if elapsed_ns and self._seat_of:
            weight = self._flows.active_weight(self._virtual)
            self._virtual += round(elapsed_ns * len(self._seat_of) * UNIT / weight)
