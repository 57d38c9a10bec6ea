"""Two-dimensional fair queueing: cheap and dear requests kept on different seats."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import ClassVar

from schedulers.flows import UNIT, Flow, Flows
from schedulers.job import Job
from schedulers.scheduler import NEVER, SchedulerConfig


class TwoDfq:
    """Serve fairly, and spread requests over the seats by their cost.

    WFQ over several seats is bursty: when the dear requests' turn comes they take all
    seats at once, and cheap ones wait for all of them. Here a request becomes eligible
    early on high seats and late on low ones, by a part of its own cost: request r on
    seat i of n once virtual time reaches S(r) - (i/n) cost(r). Dear requests so gather
    on the high seats, and the low ones stay free for the cheap. Of the eligible, the
    one with the least virtual finish is served; if none is, the nearest to it.

    Source: Mace et al. 2016 (2DFQ, SIGCOMM). Cost: O(f) per pick for f backlogged
    flows.

    >>> policy = TwoDfq(SchedulerConfig(seats=2))
    >>> for n, (flow, cost_ns) in enumerate([("dear", 900), ("cheap", 10)] * 2):
    ...     policy.arrive(Job(number=n, flow=flow, cost_ns=cost_ns), now_ns=0)
    >>> [policy.pick(0).flow for _ in range(2)]
    ['cheap', 'dear']
    """

    work_conserving: ClassVar[bool] = True
    keeps_flow_order: ClassVar[bool] = True
    may_starve: ClassVar[bool] = False
    preempts: ClassVar[str] = NEVER
    shares_by_weight: ClassVar[bool] = True
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: SchedulerConfig) -> None:
        self._flows = Flows(config)
        self._seats = config.seats
        self._free = list(range(config.seats))
        self._seat_of: dict[int, int] = {}
        self._virtual = 0
        self._seen_ns = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which starts now if it was idle."""
        self._advance(now_ns)
        flows = self._flows
        if not flows.waiting and not flows.in_service:
            self._virtual = max(self._virtual, flows.restart())
        flows.add(job, self._virtual, front=False)

    def pick(self, now_ns: int) -> Job | None:
        """Take the eligible head with the least finish, for the lowest free seat."""
        if not self._flows.waiting:
            return None
        self._advance(now_ns)
        # A borrowed seat comes after the plane's own, and counts as the last of them.
        seat = heapq.heappop(self._free) if self._free else len(self._seat_of)
        place = min(seat, self._seats - 1)
        ready = [
            (flow.start() - flow.length() * place // self._seats, _finish(flow), flow)
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

    def outranks(self, running: Job, now_ns: int) -> bool:
        """Never: a job in service runs to completion."""
        return False

    def ran(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Ignore the cost: virtual time goes by the clock, for jobs in service too."""

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Free the seat, and settle the flow's charge for what the turn used."""
        self._advance(now_ns)
        heapq.heappush(self._free, self._seat_of.pop(job.number))
        self._flows.leave(job)
        self._flows.sweep(self._virtual)

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow."""
        self._advance(now_ns)
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
        """Assert that seats and flows agree."""
        self._flows.check()
        seats = sorted([*self._free, *self._seat_of.values()])
        assert seats == list(range(len(seats))), seats
        assert len(seats) >= self._seats
        assert self._flows.in_service == len(self._seat_of)

    def _advance(self, now_ns: int) -> None:
        """Let virtual time grow by what the seats in use give to the active flows."""
        elapsed_ns = now_ns - self._seen_ns
        self._seen_ns = now_ns
        if elapsed_ns and self._seat_of:
            weight = self._flows.active_weight(self._virtual)
            self._virtual += round(elapsed_ns * len(self._seat_of) * UNIT / weight)


def _finish(flow: Flow) -> tuple[int, int]:
    return flow.start() + flow.length(), flow.jobs[0].number
