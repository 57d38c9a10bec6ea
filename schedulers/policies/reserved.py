"""Seats reserved for a class, so that a seat is free when its next job arrives."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection
from itertools import chain
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler


class Reserved(Scheduler, Foresight):
    """Serve first come, first served, but keep some seats for some classes.

    Option ``seats.CLASS`` reserves seats for a class. Its jobs take reserved seats
    first, then common seats. (Option ``steal`` = 0 forbids common seats: the class then
    has its own workers, as in a plane of its own.) No other class may use a reserved
    seat, even an idle seat, so the policy does not conserve work. This pays off for a
    class of short jobs if the other jobs are long and never preempted. At least one
    seat stays common; reservations beyond that are cut in order of name.

    Source: Demoulin et al. 2021 (Persephone's DARC, with configured instead of profiled
    reservations). Cost: O(k) per pick for k reserved classes.

    >>> config = SchedulerConfig(seats=2, options={"seats.control": 1})
    >>> policy = Reserved(config)
    >>> for n in range(2):
    ...     policy.arrive(Job(number=n, request_class="data"), now_ns=0)
    >>> policy.pick(0), policy.pick(0)
    (<data #0 level=0 >, None)
    >>> policy.arrive(Job(number=2, request_class="control"), now_ns=0)
    >>> policy.pick(0)
    <control #2 level=0 >
    """

    work_conserving: ClassVar[bool] = False
    leave_suffices: ClassVar[bool] = True
    OPTIONS: ClassVar[tuple[str, ...]] = ("seats.", "steal")

    def __init__(self, config: SchedulerConfig) -> None:
        self._steals = config.option("steal", 1) > 0
        self._wanted: dict[str, int] = {}
        for name in sorted(config.options):
            prefix, _, request_class = name.partition(".")
            if prefix == "seats":
                self._wanted[request_class] = round(config.option(name, 0))
        self._reserved: dict[str, int] = {}
        self._common = 0
        self._deal(config.seats)
        # Number of occupied seats of each class, and of the common seats under "".
        self._taken = dict.fromkeys([*self._wanted, ""], 0)
        # Jobs of each reserved class, and jobs of all other classes under "".
        self._new: dict[str, deque[Job]] = {name: deque() for name in self._wanted}
        self._new[""] = deque()
        self._back: dict[str, list[tuple[int, Job]]] = {name: [] for name in self._new}
        self._waiting = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its queue."""
        self._new[self._queue_of(job)].append(job)
        self._waiting += 1

    def pick(self, now_ns: int) -> Job | None:
        """Take a job for a reserved seat if there is one, else for a common seat."""
        for name, seats in self._reserved.items():
            if self._taken[name] < seats and self._head(name) is not None:
                return self._take(name, seat=name)
        if self._taken[""] >= self._common:
            return None
        names = self._new if self._steals else [""]
        ranked = [(*head, name) for name in names if (head := self._head(name))]
        if not ranked:
            return self._take_unreserved()
        return self._take(min(ranked)[2], seat="")

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Free the seat, reserved or common."""
        self._taken[job.tag] -= 1

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job before all jobs of its queue that were never served."""
        heapq.heappush(self._back[self._queue_of(job)], (job.number, job))
        self._waiting += 1

    def resize(self, seats: int, now_ns: int) -> None:
        """Distribute ``seats`` seats again; a job in a removed seat keeps it."""
        self._deal(seats)

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by queue."""
        begun = [job for back in self._back.values() for _, job in back]
        return [*begun, *chain.from_iterable(self._new.values())]

    def __len__(self) -> int:
        return self._waiting

    def check(self) -> None:
        """Assert that no seat count is negative and the job count is right."""
        for name, taken in self._taken.items():
            assert taken >= 0, (name, taken)
        assert self._common >= 1, self._common
        assert self._waiting == len(self.waiting())

    def _deal(self, seats: int) -> None:
        free = seats - 1
        for name, wanted in self._wanted.items():
            self._reserved[name] = min(free, wanted)
            free -= self._reserved[name]
        self._common = 1 + free

    def _queue_of(self, job: Job) -> str:
        return job.request_class if job.request_class in self._wanted else ""

    def _head(self, name: str) -> tuple[int, int] | None:
        """Return the rank of a queue's first job; resumed jobs rank first."""
        if self._back[name]:
            return 0, self._back[name][0][0]
        return (1, self._new[name][0].number) if self._new[name] else None

    def _take(self, name: str, *, seat: str) -> Job:
        back = self._back[name]
        job = heapq.heappop(back)[1] if back else self._new[name].popleft()
        job.tag = seat
        self._taken[seat] += 1
        self._waiting -= 1
        return job

    def _take_unreserved(self) -> Job | None:
        """Serve a class that may not steal and whose reservation was cut to nothing."""
        for name, seats in self._reserved.items():
            if not seats and self._head(name) is not None:
                return self._take(name, seat="")
        return None
