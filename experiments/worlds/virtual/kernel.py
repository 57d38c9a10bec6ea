"""Planes of handler threads on shared CPUs, as in Kafka, in the virtual world.

With ``server = "threads"`` a handler computes nothing, but asks a kernel for its
request's demand and holds its seat, which is its thread, until it has had that. The
kernel takes CPUs from threads anywhere: at the end of a slice, or when another thread
wakes. The whole broker runs on such planes, reader, queues, admission and all. The rule
is that of the model's threads (``worlds/model/threads``), Linux' CFS over one queue,
and shares no code with it: each is a test of the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from experiments.design.worlds import VirtualKernel
from planes.clock import NowNs

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Sharing of CPUs, in nanoseconds; the losses of a switch and a preemption.

    Without ``wakes`` a thread that wakes waits for the end of a slice (EEVDF, about).
    """

    cpus: int
    slice_ns: int
    wakes: bool = True
    switch_ns: int = 0
    preemption_ns: int = 0


def sharing(settings: VirtualKernel) -> Sharing:
    """Return what an experiment says of its kernel."""
    return Sharing(
        cpus=settings.cpus,
        slice_ns=round(settings.slice_us * 1000),
        wakes=settings.wakes,
        switch_ns=round(settings.switch_us * 1000),
        preemption_ns=round(settings.preemption_us * 1000),
    )


class _Demand:
    """A handler's wait for its demand."""

    def __init__(self, needs_ns: int) -> None:
        self.left_ns = needs_ns
        self.met = trio.Event()


class _Thread:
    """A handler thread; without a demand it sleeps.

    Its service is counted up to ``charged_ns``; its turn lasts to ``turn_ends_ns`` if
    another thread is as entitled to the CPU.
    """

    def __init__(self, plane: object) -> None:
        self.plane = plane
        self.demand: _Demand | None = None
        self.cpu = -1
        self.received_ns = self.charged_ns = self.turn_ends_ns = 0


class Kernel:
    """The threads of all planes on their CPUs; ``seats`` says how many each plane has.

    Cost: O(threads) an instant.
    """

    def __init__(
        self, seats: Mapping[Any, int], sharing: Sharing, now_ns: NowNs
    ) -> None:
        self._sharing = sharing
        self._now_ns = now_ns
        self._idle = {
            plane: deque(_Thread(plane) for _ in range(count))
            for plane, count in seats.items()
        }
        self._seats = dict(seats)
        # Threads that are no more wanted, of each plane: they end when they sleep.
        self._ending = dict.fromkeys(seats, 0)
        self._new: list[tuple[object, _Demand]] = []
        self._asked = trio.Event()
        self._ready: list[_Thread] = []
        self._running: list[_Thread] = []
        self._free = list(range(sharing.cpus))
        self._last: list[_Thread | None] = [None] * sharing.cpus
        # The least that a thread with something to do has received; never decreases.
        self._base_ns = 0

    def resize(self, seats: Mapping[Any, int]) -> None:
        """Change the number of threads to ``seats`` from now on.

        A thread that goes serves its request to the end first (Kafka:
        ``resizeThreadPool``); those that come are asleep.
        """
        for plane, count in seats.items():
            self._ending[plane] += self._seats[plane] - count
            while self._ending[plane] < 0:
                self._idle[plane].append(_Thread(plane))
                self._ending[plane] += 1
        self._seats.update(seats)

    async def receive(self, plane: object, needs_ns: int) -> None:
        """Wait until a thread of the plane has had so much CPU."""
        if needs_ns > 0:
            demand = _Demand(needs_ns)
            self._new.append((plane, demand))
            self._asked.set()
            await demand.met.wait()

    async def run(self) -> None:
        """Share the CPUs until cancelled."""
        while True:
            await wait_all_tasks_blocked()
            self._asked = trio.Event()
            now_ns = self._now_ns()
            self._bill(now_ns)
            if self._meet():
                # A served thread may take the next request at this very instant.
                continue
            self._seat(now_ns)
            self._turn(now_ns)
            await self._until(self._next_ns(now_ns))

    async def _until(self, due_ns: int | None) -> None:
        """Wait for a demand, or for a moment."""
        if due_ns is None:
            await self._asked.wait()
            return
        with trio.move_on_at(due_ns / _NS):
            await self._asked.wait()

    def _bill(self, now_ns: int) -> None:
        for thread in self._running:
            # Less than nothing while it is being switched to.
            used_ns = max(0, now_ns - thread.charged_ns)
            thread.received_ns += used_ns
            thread.charged_ns += used_ns
            if thread.demand is not None:
                thread.demand.left_ns -= used_ns

    def _meet(self) -> bool:
        """Release threads whose demand is met; return whether there were any."""
        met = [
            thread
            for thread in self._running
            if thread.demand is not None and thread.demand.left_ns <= 0
        ]
        for thread in met:
            assert thread.demand is not None
            thread.demand.met.set()
            thread.demand = None
        return bool(met)

    def _seat(self, now_ns: int) -> None:
        """Give demands to threads: to those that go on, then to those that sleep."""
        asleep = []
        for plane, demand in self._new:
            going_on = (
                it for it in self._running if it.plane is plane and it.demand is None
            )
            thread = next(going_on, None)
            if thread is None:
                asleep.append((plane, demand))
            else:
                thread.demand = demand
                if thread.turn_ends_ns <= now_ns and not self._ready:
                    thread.turn_ends_ns = now_ns + self._sharing.slice_ns
        self._new.clear()
        for thread in [it for it in self._running if it.demand is None]:
            self._leave(thread)
            self._idle[thread.plane].append(thread)
            if self._ready:
                self._start(self._least(), thread.cpu, now_ns)
        for plane, demand in asleep:
            thread = self._idle[plane].popleft()
            thread.demand = demand
            self._wake_up(thread, now_ns)
        for plane, idle in self._idle.items():
            # Only now: a thread that had a seat at that time has asked by now, too.
            while self._ending[plane] and idle:
                idle.pop()
                self._ending[plane] -= 1

    def _wake_up(self, thread: _Thread, now_ns: int) -> None:
        """Place a thread that has slept among the others; preempt one if it may."""
        awake = (*self._running, *self._ready)
        least_ns = min((it.received_ns for it in awake), default=0)
        self._base_ns = max(self._base_ns, least_ns)
        credit_ns = self._sharing.slice_ns if self._sharing.wakes else 0
        thread.received_ns = max(thread.received_ns, self._base_ns - credit_ns)
        if self._free:
            cpu = next((it for it in self._free if self._last[it] is thread), None)
            self._ready.append(thread)
            self._start(thread, self._free[0] if cpu is None else cpu, now_ns)
            return
        if not self._ready:
            self._renew(now_ns)
        self._ready.append(thread)
        if self._sharing.wakes:
            most = max(self._running, key=_received)
            if most.received_ns > thread.received_ns:
                most.turn_ends_ns = max(now_ns, most.charged_ns)

    def _renew(self, now_ns: int) -> None:
        """Renew turns that ended without a waiting thread."""
        slice_ns = self._sharing.slice_ns
        for thread in self._running:
            over_ns = now_ns - thread.turn_ends_ns
            if over_ns > 0:
                thread.turn_ends_ns += -(-over_ns // slice_ns) * slice_ns

    def _turn(self, now_ns: int) -> None:
        """End the turns that are over, if anybody waits for one."""
        if not self._ready:
            return
        over = [it for it in self._running if it.turn_ends_ns <= now_ns]
        for thread in over:
            if self._least().received_ns <= thread.received_ns:
                cpu = thread.cpu
                self._leave(thread)
                self._ready.append(thread)
                lost_ns = self._sharing.preemption_ns
                self._start(self._least(), cpu, now_ns, lost_ns)
            else:
                thread.turn_ends_ns = now_ns + self._sharing.slice_ns

    def _start(self, thread: _Thread, cpu: int, now_ns: int, lost_ns: int = 0) -> None:
        """Put a thread that is ready on a CPU that is free."""
        self._ready.remove(thread)
        self._free.remove(cpu)
        self._running.append(thread)
        if self._last[cpu] is not thread:
            lost_ns += self._sharing.switch_ns
        self._last[cpu] = thread
        thread.cpu = cpu
        thread.charged_ns = now_ns + lost_ns
        thread.turn_ends_ns = thread.charged_ns + self._sharing.slice_ns

    def _leave(self, thread: _Thread) -> None:
        self._running.remove(thread)
        self._free.append(thread.cpu)

    def _least(self) -> _Thread:
        return min(self._ready, key=_received)

    def _next_ns(self, now_ns: int) -> int | None:
        """Return when a demand is met or a turn is over, None if nothing runs."""
        due_ns = None
        for thread in self._running:
            assert thread.demand is not None
            at_ns = thread.charged_ns + thread.demand.left_ns
            if self._ready:
                turn_ns = max(thread.charged_ns, thread.turn_ends_ns)
                at_ns = min(at_ns, turn_ns)
            due_ns = at_ns if due_ns is None else min(due_ns, at_ns)
        assert due_ns is None or due_ns > now_ns, (due_ns, now_ns)
        return due_ns


def _received(thread: _Thread) -> int:
    return thread.received_ns
