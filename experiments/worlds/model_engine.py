"""Discrete events around the broker's own planes: no Trio, no bytes, only decisions.

The engine drives ``PlaneCore`` and its scheduler exactly as the dispatcher does, but
time is a heap of events and a request is a demand in nanoseconds. A *site* is what
serves: one plane whose seats are independent servers (M/G/c), or one CPU at which all
planes take turns (``planes.Cpu``).

A task in service is cut at its preemption points: multiples of ``granularity_ns`` of
its own service, anywhere if that is 0. A policy is asked when ``Scheduler.preempts``
says that its answer can change: never, when something comes to wait, or also at every
point (every quantum, if anywhere is a point) while something waits. ``preemption_ns``
and ``switch_ns`` are overheads that a server pays when it preempts, and when it starts
anything but the task it left last; they are lost work, billed to nobody.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from experiments.worlds.model_locks import Locks
from experiments.worlds.model_task import ModelTask
from planes import Cpu, PlaneCore
from planes.lending import Lending
from schedulers import IN_SERVICE, NEVER

NEVER_NS: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Where tasks may be preempted, and what that costs a server."""

    granularity_ns: int = 0
    preemption_ns: int = 0
    switch_ns: int = 0


class Arrivals(Protocol):
    """Where tasks come from, and where they go when they are done.

    ``due_ns`` is when the next task arrives, ``NEVER_NS`` after the last one;
    ``hears_room`` says whether ``room`` must be called.
    """

    due_ns: int
    hears_room: bool

    def arrive(self, now_ns: int) -> None:
        """Let the tasks of this moment in."""

    def done(self, task: ModelTask, now_ns: int) -> None:
        """Take a task that has been served."""

    def room(self, plane: PlaneCore, now_ns: int) -> None:
        """Hear that a task has left a queue."""


class Site:
    """One plane's servers; or one CPU or one pool of seats that planes share."""

    def __init__(
        self,
        planes: Iterable[PlaneCore],
        overheads: Overheads,
        *,
        cpu: Cpu | Lending | None = None,
    ) -> None:
        self.planes = tuple(planes)
        assert cpu is not None or len(self.planes) == 1
        driver = cpu if cpu is not None else self.planes[0]
        self.pick = driver.pick
        self.charge = driver.charge
        # What a plane answers is what its scheduler answers.
        alone = self.planes[0].scheduler.outranks
        self.must_yield = cpu.must_yield if cpu is not None else alone
        self.wake = cpu.wake if isinstance(cpu, Cpu) else None
        if isinstance(cpu, Lending):
            self.servers = cpu.seats
        else:
            self.servers = 1 if cpu else self.planes[0].seats
        self.running: list[ModelTask] = []
        self.overheads = overheads
        self.overhead_ns = overheads.preemption_ns + overheads.switch_ns > 0
        preempts = {plane.scheduler.preempts for plane in self.planes}
        self.watches = len(self.planes) > 1 or IN_SERVICE in preempts
        self.may_idle = not all(
            plane.scheduler.work_conserving for plane in self.planes
        )
        self.asks = self.watches or preempts != {NEVER}
        self.last: ModelTask | None = None
        self.preempted = False
        self.lost_ns = 0
        self.alarm_ns = NEVER_NS
        self.anywhere = overheads.granularity_ns == 0
        self.check_every_ns = overheads.granularity_ns
        # How many tasks wait here: of one plane, the length of its queue.
        lengths = [plane.scheduler.__len__ for plane in self.planes]
        self.waiting: Callable[[], int] = (
            lengths[0] if len(lengths) == 1 else lambda: sum(it() for it in lengths)
        )


class Engine:
    """Runs sites from event to event until nothing is left, or until a deadline.

    ``refusal_ns`` is what it takes to turn a task away.
    """

    def __init__(
        self, sites: Iterable[Site], *, quantum_ns: int, refusal_ns: int = 0
    ) -> None:
        self.now_ns = 0
        self.sites = tuple(sites)
        self._site_of = {plane: site for site in self.sites for plane in site.planes}
        self._events: list[tuple[int, int, Any, int]] = []
        self._serial = 0
        self._refusal_ns = refusal_ns
        self._locks = Locks(self._stir)
        self._source: Arrivals | None = None
        for site in self.sites:
            site.check_every_ns = site.overheads.granularity_ns or quantum_ns

    def run(self, source: Arrivals, *, until_ns: int = NEVER_NS - 1) -> None:
        """Serve what the source lets in. Cost: O(log n) an event."""
        self._source = source
        events, pop, end = self._events, heapq.heappop, self._end
        while True:
            arrival_ns = source.due_ns
            if events and events[0][0] <= arrival_ns:
                if events[0][0] > until_ns:
                    break
                self.now_ns, _, it, epoch = pop(events)
                now_ns = self.now_ns
                if type(it) is ModelTask:
                    # Events of a slice that was cut short mean nothing any more.
                    if it.epoch == epoch:
                        if now_ns == it.ends_ns:
                            end(it, now_ns)
                        else:
                            self._ask(it, now_ns)
                elif type(it) is Site:
                    it.alarm_ns = NEVER_NS
                    self._fill(it, now_ns)
                else:
                    it(now_ns)
            elif arrival_ns <= until_ns:
                self.now_ns = arrival_ns
                source.arrive(arrival_ns)
            else:
                break

    def at(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Call something at a moment of the run."""
        self._push(at_ns, call, 0)

    def offer(self, plane: PlaneCore, task: ModelTask, now_ns: int) -> bool:
        """Put a task into a plane's queue, and see to it that it is served."""
        if not plane.offer(task, now_ns):
            return False
        site = self._site_of[plane]
        if site.wake is not None:
            site.wake(plane)
        if len(site.running) < site.servers:
            self._fill(site, now_ns)
        elif site.asks:
            self._consider(site, now_ns)
        return True

    def _stir(self, task: ModelTask, now_ns: int) -> None:
        """A task waits for a server again: see to it once this event is over."""
        site = self._site_of[task.plane]
        if site.wake is not None:
            site.wake(task.plane)
        self._push(now_ns, partial(self._serve_again, site), 0)

    def _serve_again(self, site: Site, now_ns: int) -> None:
        if len(site.running) < site.servers:
            self._fill(site, now_ns)
        elif site.asks:
            self._consider(site, now_ns)

    # ---- serving ------------------------------------------------------------------

    def _push(self, at_ns: int, it: Any, epoch: int) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at_ns, self._serial, it, epoch))

    def _fill(self, site: Site, now_ns: int) -> None:
        """Start tasks while a server is free and something is ready."""
        source = self._source
        assert source is not None
        while len(site.running) < site.servers:
            task: Any = site.pick(now_ns)
            if task is None:
                if site.may_idle:
                    self._set_alarm(site, now_ns)
                return
            starts_ns = now_ns
            if task.refusal is None and task.lock is None:
                left_ns = task.demand_ns - task.attained_ns
            else:
                left_ns = self._turn_ns(task, now_ns)
                if left_ns is None:
                    continue
            if site.overhead_ns:
                starts_ns += self._overhead_ns(site, task)
            task.epoch += 1
            task.check_planned = False
            task.charged_ns = starts_ns
            task.ends_ns = ends_ns = starts_ns + left_ns
            site.running.append(task)
            self._serial += 1
            heapq.heappush(self._events, (ends_ns, self._serial, task, task.epoch))
            if site.watches and site.waiting():
                self._plan_check(site, task, now_ns)
            if source.hears_room and task.dequeued_ns == now_ns:
                source.room(task.plane, now_ns)

    def _turn_ns(self, task: ModelTask, now_ns: int) -> int | None:
        """Return how long a turn lasts that is refused or locks; None: it sleeps."""
        source = self._source
        assert source is not None
        if task.refusal is not None:
            task.demand_ns, task.lock = self._refusal_ns, None
        if task.lock is None:
            return task.demand_ns - task.attained_ns
        left_ns = self._locks.begin(task, now_ns)
        if left_ns is None and source.hears_room and task.dequeued_ns == now_ns:
            source.room(task.plane, now_ns)
        return left_ns

    def _overhead_ns(self, site: Site, task: ModelTask) -> int:
        """Return what the server pays before it starts a task."""
        cost_ns = site.overheads.switch_ns if site.last is not task else 0
        if site.preempted:
            cost_ns += site.overheads.preemption_ns
        site.last, site.preempted = task, False
        site.lost_ns += cost_ns
        return cost_ns

    def _end(self, task: ModelTask, now_ns: int) -> None:
        """Let a task go that has had its demand, and start the next."""
        plane: PlaneCore = task.plane
        site = self._site_of[plane]
        site.charge(task, now_ns - task.charged_ns, now_ns)
        if task.runner is not None:
            self._locks.cut(task, now_ns)
            if task.demand_ns > task.attained_ns:
                self._go_on(site, task, now_ns)
                return
        site.running.remove(task)
        task.epoch += 1
        plane.leave(task, now_ns)
        assert self._source is not None
        self._source.done(task, now_ns)
        self._fill(site, now_ns)

    def _go_on(self, site: Site, task: ModelTask, now_ns: int) -> None:
        """A lock was freed in the turn of a task: a preemption point."""
        task.charged_ns = now_ns
        if site.must_yield(task, now_ns):
            self._preempt(site, task, now_ns)
            self._fill(site, now_ns)
            return
        task.epoch += 1
        left_ns = self._turn_ns(task, now_ns)
        if left_ns is None:
            site.running.remove(task)
            self._fill(site, now_ns)
            return
        task.check_planned = False
        task.ends_ns = now_ns + left_ns
        self._push(task.ends_ns, task, task.epoch)
        if site.watches and site.waiting():
            self._plan_check(site, task, now_ns)

    def _ask(self, task: ModelTask, now_ns: int) -> None:
        """Ask at a preemption point whether the task must give way."""
        site = self._site_of[task.plane]
        site.charge(task, now_ns - task.charged_ns, now_ns)
        task.charged_ns = now_ns
        task.check_planned = False
        if site.must_yield(task, now_ns):
            self._preempt(site, task, now_ns)
            self._fill(site, now_ns)
        elif site.watches and site.waiting():
            self._plan_check(site, task, now_ns)

    def _preempt(self, site: Site, task: ModelTask, now_ns: int) -> None:
        site.running.remove(task)
        task.epoch += 1
        if task.runner is not None:
            self._locks.cut(task, now_ns)
        plane: PlaneCore = task.plane
        plane.suspend(task, now_ns)
        site.preempted = True
        if site.wake is not None:
            site.wake(plane)

    def _consider(self, site: Site, now_ns: int) -> None:
        """Something has come to wait: ask those in service at their next point."""
        must_yield, running = site.must_yield, site.running
        if site.watches or not site.anywhere:
            if site.servers == 1:
                self._consider_at_point(site, running[0], now_ns)
            else:
                for task in running[:]:
                    self._consider_at_point(site, task, now_ns)
        elif len(running) == 1:
            if must_yield(running[0], now_ns):
                self._gives_way(site, running[0], now_ns)
        else:
            yielding = [task for task in running if must_yield(task, now_ns)]
            if len(yielding) > 1:
                # The least urgent first, so that no task is preempted in vain.
                yielding.sort(key=_by_urgency)
            for task in yielding:
                self._gives_way(site, task, now_ns)

    def _consider_at_point(self, site: Site, task: ModelTask, now_ns: int) -> None:
        """Ask a task in service now if it may be now, else plan to ask it."""
        if site.anywhere and self._gives_way(site, task, now_ns):
            return
        if not task.check_planned:
            self._plan_check(site, task, now_ns)

    def _gives_way(self, site: Site, task: ModelTask, now_ns: int) -> bool:
        """Bill a task up to now, and preempt it if it is still outranked."""
        used_ns = now_ns - task.charged_ns
        if used_ns < 0:
            return False
        site.charge(task, used_ns, now_ns)
        task.charged_ns = now_ns
        if not site.must_yield(task, now_ns):
            return False
        self._preempt(site, task, now_ns)
        self._fill(site, now_ns)
        return True

    def _plan_check(self, site: Site, task: ModelTask, now_ns: int) -> None:
        """Ask again at the next preemption point, if the task lasts that long."""
        every_ns = site.check_every_ns
        begun_ns = max(now_ns, task.charged_ns)
        into_ns = (task.attained_ns + begun_ns - task.charged_ns) % every_ns
        if into_ns == 0 and begun_ns == now_ns > task.charged_ns:
            at_ns = now_ns
        else:
            at_ns = begun_ns + every_ns - into_ns
        if at_ns < task.ends_ns:
            task.check_planned = True
            self._push(at_ns, task, task.epoch)

    def _set_alarm(self, site: Site, now_ns: int) -> None:
        """Come back when time alone makes a task ready."""
        for plane in site.planes:
            event_ns = plane.next_event_ns(now_ns)
            if event_ns is not None and event_ns < site.alarm_ns:
                site.alarm_ns = event_ns
                self._push(event_ns, site, 0)


def _by_urgency(task: ModelTask) -> tuple[int, int]:
    return -task.level, -task.number
