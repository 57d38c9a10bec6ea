"""mClock: a reservation, a limit and a weight for each class."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler


class _Client:
    """A class: its settings, its backlog, and the tags of the job at its head.

    Tags are times in nanoseconds. At ``reserved`` the reservation entitles the job to
    service; at ``limited`` the limit allows it; ``shared`` orders classes by weight.
    """

    __slots__ = (
        "jobs", "limit", "limited", "name", "reservation", "reserved", "shared",
        "weight",
    )  # fmt: skip

    def __init__(self, name: str, config: SchedulerConfig, job: Job) -> None:
        self.name = name
        self.jobs: deque[Job] = deque()
        self.reservation = config.option(f"reservation.{name}", 0.0)
        self.limit = config.option(f"limit.{name}", float("inf"))
        self.weight = config.weight(job)
        self.reserved = self.limited = self.shared = 0


class MClock(Scheduler, Foresight):
    """Serve classes below their reservation first, then by weight up to the limit.

    Reservations and limits are CPU seconds per second (options ``reservation.CLASS``
    and ``limit.CLASS``). No other policy here can both guarantee and limit the share of
    a class. Each class has three clocks, which advance by the cost of its jobs divided
    by reservation, limit and weight. A job served by weight does not use up the
    reservation of its class. If every waiting class is at its limit, no job is served
    until a class is below it: the policy does not conserve work. Costs are corrected
    when a job leaves. Not preemptive.

    Source: Gulati, Merchant, Varman 2010 (OSDI); Ceph's dmclock. Cost: O(k) for k
    classes.

    >>> policy = MClock(SchedulerConfig(options={"limit.data": 0.5}))
    >>> for n in range(2):
    ...     policy.arrive(Job(number=n, cost_ns=100), now_ns=0)
    >>> policy.pick(0).number, policy.pick(0), policy.next_event_ns(0)
    (0, None, 200)
    """

    work_conserving: ClassVar[bool] = False
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ("reservation.", "limit.")

    def __init__(self, config: SchedulerConfig) -> None:
        for name in config.options:
            rule, _, request_class = name.partition(".")
            if rule == "limit":
                reservation = config.option(f"reservation.{request_class}", 0.0)
                config.option(name, 1.0, least=max(reservation, 1e-6))
        self._config = config
        self._clients: dict[str, _Client] = {}
        self._waiting = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its class, whose clocks start now if it was idle."""
        client = self._clients.get(job.request_class)
        if client is None:
            client = _Client(job.request_class, self._config, job)
            self._clients[job.request_class] = client
        if not client.jobs:
            self._wake(client, now_ns)
        client.jobs.append(job)
        self._waiting += 1

    def pick(self, now_ns: int) -> Job | None:
        """Take the head of a class whose reservation is due, else by ``shared``."""
        waiting = [client for client in self._clients.values() if client.jobs]
        due = [it for it in waiting if it.reservation and it.reserved <= now_ns]
        if due:
            client = min(due, key=lambda it: (it.reserved, it.jobs[0].number))
        else:
            allowed = [it for it in waiting if it.limited <= now_ns]
            if not allowed:
                return None
            client = min(allowed, key=lambda it: (it.shared, it.jobs[0].number))
        job = client.jobs.popleft()
        self._waiting -= 1
        charged_ns = max(0, job.cost_ns - job.attained_ns)
        job.tag = (charged_ns, job.attained_ns, bool(due))
        self._bill(client, charged_ns, by_reservation=bool(due))
        return job

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Advance the class's clocks, as for a job served by weight."""
        self._bill(self._clients[job.request_class], used_ns, by_reservation=False)

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Correct the class's clocks to the CPU that the turn used."""
        charged_ns, attained_ns, by_reservation = job.tag
        used_ns = job.attained_ns - attained_ns
        client = self._clients[job.request_class]
        self._bill(client, used_ns - charged_ns, by_reservation=by_reservation)

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its class."""
        client = self._clients[job.request_class]
        if not client.jobs:
            self._wake(client, now_ns)
        client.jobs.appendleft(job)
        self._waiting += 1

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return when the first reservation or limit allows a waiting job."""
        moments = [
            min(it.limited, it.reserved) if it.reservation else it.limited
            for it in self._clients.values()
            if it.jobs
        ]
        return min(moments, default=None)

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by class."""
        return [job for client in self._clients.values() for job in client.jobs]

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that the count equals the sum over the classes."""
        assert self._waiting == sum(len(it.jobs) for it in self._clients.values())

    def _wake(self, client: _Client, now_ns: int) -> None:
        """Start an idle class now, without credit or debt from its idle time."""
        others = [it.shared for it in self._clients.values() if it.jobs]
        client.reserved = max(client.reserved, now_ns)
        client.limited = max(client.limited, now_ns)
        client.shared = max(client.shared, min(others, default=client.shared))

    def _bill(self, client: _Client, cost_ns: int, *, by_reservation: bool) -> None:
        client.limited += round(cost_ns / client.limit)
        client.shared += round(cost_ns / client.weight)
        if client.reservation and by_reservation:
            client.reserved += round(cost_ns / client.reservation)
