"""Discrete events around the broker's own planes: no Trio, no bytes, only decisions.

The engine drives ``PlaneCore`` and its scheduler exactly as the dispatcher does, but
time is a heap of events and a request is a demand in nanoseconds. A *site* is a place
of service: one plane whose seats are independent servers (M/G/c), one CPU or one pool
of seats that planes share (``site``), or threads that a kernel preempts (``threads``).

A task in service can be preempted at its preemption points: multiples of
``granularity_ns`` of its own service, or anywhere if that is 0. ``outranks`` is called
when ``Scheduler.preempts`` allows a change of its answer: never, when a task starts
waiting, or also at every point (every quantum, if anywhere is a point) while one waits.
For a lone server it is called only from the time at which it can be true, if the policy
predicts that time (``outranked_at_ns``). ``preemption_ns`` and ``switch_ns`` are
overheads of a server when it preempts, and when it starts another task than its last
one. They are lost time, and not billed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol, cast

from experiments.worlds.model.locks import Locks
from experiments.worlds.model.site import NEVER_NS, Site
from experiments.worlds.model.task import ModelTask
from experiments.worlds.model.threads import Threads
from planes.task import TaskPlane


class Arrivals(Protocol):
    """The source of tasks, and the receiver of finished ones.

    ``tasks`` are those of the run in the order of ``received_ns``, each created after
    the arrival of the one before. ``waits_for_room``: ``room`` must be called.
    """

    tasks: Iterable[ModelTask]
    waits_for_room: bool

    def arrive(self, task: ModelTask, now_ns: int) -> bool:
        """Admit a task; False is an error."""

    def done(self, task: ModelTask) -> None:
        """Accept a completed task."""

    def room(self, plane: TaskPlane, now_ns: int) -> None:
        """Handle the departure of a task from a queue."""


class Engine:
    """Runs sites from event to event until none remains, or until a deadline.

    ``refusal_ns`` is the cost of a rejection.
    """

    def __init__(
        self, sites: Iterable[Site | Threads], *, quantum_ns: int, refusal_ns: int = 0
    ) -> None:
        self.now_ns = 0
        self.sites = tuple(sites)
        # Threads manage themselves: of a site's methods, only `wake` is called.
        self._site_of: dict[TaskPlane, Site] = {
            plane: cast(Site, it) for it in self.sites for plane in it.planes
        }
        # Time, serial number, and subject; a sentinel is never due.
        self._events: list[tuple[int, int, Any]] = [(NEVER_NS, 0, None)]
        self._serial = 0
        self.quantum_ns = quantum_ns
        self.refusal_ns = refusal_ns
        self._locks = Locks(self._stir)
        # The callbacks of the source.
        self._done: Callable[[ModelTask], None]
        self._room: Callable[[TaskPlane, int], None]
        self._waits_for_room = False
        for site in self.sites:
            site.begin(self)

    def run(self, source: Arrivals, *, until_ns: int = NEVER_NS - 1) -> None:
        """Serve the source's tasks. Cost: O(log n) an event."""
        self._done, self._room = source.done, source.room
        self._waits_for_room = source.waits_for_room
        arrive, events = source.arrive, self._events
        for task in source.tasks:
            due_ns = task.received_ns
            if due_ns > until_ns:
                break
            if events[0][0] <= due_ns:
                self._advance(due_ns)
            self.now_ns = due_ns
            admitted = arrive(task, due_ns)
            assert admitted, task.plane
        self._advance(until_ns)

    def _advance(self, until_ns: int) -> None:
        """Handle all events up to an instant."""
        events = self._events
        while events[0][0] <= until_ns:
            now_ns, serial, it = heappop(events)
            self.now_ns = now_ns
            if type(it) is ModelTask:
                # A task's other events are void, because its slice was interrupted.
                if serial == it.end_serial:
                    self._end(it, now_ns)
                elif serial == it.check_serial:
                    self._check_preemption(it, now_ns)
            elif type(it) is Site:
                it.alarm_ns = NEVER_NS
                self._fill(it, now_ns)
            else:
                it(now_ns)

    def at(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Call a function at an instant of the run."""
        self._push(at_ns, call)

    def took(self, task: ModelTask, now_ns: int) -> None:
        """Handle the pick of a task by a site."""
        if self._waits_for_room and task.dequeued_ns == now_ns:
            self._room(task.plane, now_ns)

    def served(self, task: ModelTask) -> None:
        """Handle the completion of a task by a site."""
        self._done(task)

    def offer(self, task: ModelTask, now_ns: int) -> bool:
        """Queue a task in its plane, and start it or check for preemption."""
        plane = task.plane
        if not plane.offer(task, now_ns):
            return False
        site = self._site_of[plane]
        if site.wake is not None:
            site.wake(plane)
        if site.free:
            self._fill(site, now_ns)
        elif site.outranked_at_ns is not None:
            if not site.settled:
                self._consider_in_time(site, site.running[0], now_ns)
        elif site.checks_preemption:
            self._consider(site, now_ns)
        return True

    def _stir(self, task: ModelTask, now_ns: int) -> None:
        """Make a task that waits again be served, after the current event."""
        site = self._site_of[task.plane]
        if site.wake is not None:
            site.wake(task.plane)
        self._push(now_ns, partial(self._serve, site))

    def _serve(self, site: Site, now_ns: int) -> None:
        """Start a task, or check for preemption, after a task has started to wait."""
        if site.free:
            self._fill(site, now_ns)
        elif site.outranked_at_ns is not None:
            self._consider_in_time(site, site.running[0], now_ns)
        elif site.checks_preemption:
            self._consider(site, now_ns)

    # ---- serving ------------------------------------------------------------------

    def _push(self, at_ns: int, it: Any) -> int:
        """Schedule an event; return its number."""
        self._serial = serial = self._serial + 1
        heappush(self._events, (at_ns, serial, it))
        return serial

    def _fill(self, site: Site, now_ns: int) -> None:
        """Start tasks while a server is free and a task is ready."""
        # A local name saves an attribute look-up per task.
        pick = site.pick
        while site.free:
            task: Any = pick(now_ns)
            if task is None:
                self._set_alarm(site, now_ns)
                return
            if task.refusal is None and task.lock is None:
                left_ns = task.demand_ns - task.attained_ns
            else:
                left_ns = self._turn_ns(task, now_ns)
                if left_ns is None:
                    continue
            begins_ns = now_ns
            if site.costs:
                begins_ns += self._overhead_ns(site, task)
            task.charged_ns = begins_ns
            task.ends_ns = ends_ns = begins_ns + left_ns
            self._serial = task.end_serial = serial = self._serial + 1
            task.check_serial = 0
            heappush(self._events, (ends_ns, serial, task))
            site.running.append(task)
            site.free -= 1
            if site.watches:
                site.settled = left_ns <= site.least_turn_ns
                if not site.settled:
                    site.firm_ns = task.attained_ns + site.least_turn_ns
                    self._watch(site, task, now_ns)
            if self._waits_for_room and task.dequeued_ns == now_ns:
                self._room(task.plane, now_ns)

    def _turn_ns(self, task: ModelTask, now_ns: int) -> int | None:
        """Return the length of a turn with a refusal or a lock; None if it sleeps."""
        if task.refusal is not None:
            task.demand_ns, task.lock = self.refusal_ns, None
        if task.lock is None:
            return task.demand_ns - task.attained_ns
        left_ns = self._locks.begin(task, now_ns)
        if left_ns is None and self._waits_for_room and task.dequeued_ns == now_ns:
            self._room(task.plane, now_ns)
        return left_ns

    def _overhead_ns(self, site: Site, task: ModelTask) -> int:
        """Return the server's overhead before it starts a task."""
        cost_ns = site.overheads.switch_ns if site.last is not task else 0
        if site.preempted:
            cost_ns += site.overheads.preemption_ns
        site.last, site.preempted = task, False
        site.lost_ns += cost_ns
        return cost_ns

    def _end(self, task: ModelTask, now_ns: int) -> None:
        """Complete a task whose demand is served, and start the next."""
        site = self._site_of[task.plane]
        used_ns = now_ns - task.charged_ns
        if task.runner is not None:
            site.charge(task, used_ns, now_ns)
            self._locks.cut(task, now_ns)
            if task.demand_ns > task.attained_ns:
                self._go_on(site, task, now_ns)
                return
            used_ns = 0
        task.local_done_ns = task.remote_done_ns = now_ns
        finish, done = site.finish, self._done
        finish(task, used_ns, now_ns)
        site.running.remove(task)
        site.free += 1
        done(task)
        self._fill(site, now_ns)

    def _go_on(self, site: Site, task: ModelTask, now_ns: int) -> None:
        """Continue after a task has released a lock, which is a preemption point."""
        task.charged_ns = now_ns
        # Earlier foresight referred to the turn that has just ended.
        site.firm_ns, site.settled = -1, False
        if site.must_yield(task, now_ns):
            self._preempt(site, task, now_ns)
            self._fill(site, now_ns)
            return
        left_ns = self._turn_ns(task, now_ns)
        if left_ns is None:
            self._stop(site, task)
            self._fill(site, now_ns)
            return
        task.ends_ns = now_ns + left_ns
        task.end_serial = self._push(task.ends_ns, task)
        task.check_serial = 0
        if site.watches:
            self._watch(site, task, now_ns)

    def _check_preemption(self, task: ModelTask, now_ns: int) -> None:
        """Check at a preemption point whether the task must yield."""
        site = self._site_of[task.plane]
        site.charge(task, now_ns - task.charged_ns, now_ns)
        task.charged_ns = now_ns
        task.check_serial = 0
        site.settled = False
        if site.must_yield(task, now_ns):
            self._preempt(site, task, now_ns)
            self._fill(site, now_ns)
        elif site.watches:
            self._watch(site, task, now_ns)

    def _stop(self, site: Site, task: ModelTask) -> None:
        """Free the server of a task in service; the task's events become void."""
        site.running.remove(task)
        site.free += 1
        task.end_serial = task.check_serial = 0

    def _preempt(self, site: Site, task: ModelTask, now_ns: int) -> None:
        self._stop(site, task)
        if task.runner is not None:
            self._locks.cut(task, now_ns)
        plane = task.plane
        plane.suspend(task, now_ns)
        site.preempted = True
        if site.wake is not None:
            site.wake(plane)

    def _consider(self, site: Site, now_ns: int) -> None:
        """Check for preemption after a task has started to wait."""
        running = site.running
        if site.at_once:
            if len(running) == 1:
                yielding = running if site.must_yield(running[0], now_ns) else ()
            else:
                yielding = [task for task in running if site.must_yield(task, now_ns)]
                # The least urgent first, so that no preemption is unnecessary.
                yielding.sort(key=_by_urgency)
            for task in yielding:
                self._gives_way(site, task, now_ns)
            return
        for task in running[:]:
            if site.anywhere and self._gives_way(site, task, now_ns):
                continue
            if not task.check_serial:
                self._plan_check(site, task, now_ns, 0)

    def _consider_in_time(self, site: Site, task: ModelTask, now_ns: int) -> None:
        """Check the single running task now if it can be outranked, else later."""
        outranked_at_ns = site.outranked_at_ns
        assert outranked_at_ns is not None
        from_ns = outranked_at_ns(task)
        if from_ns is None:
            return
        due_ns = task.charged_ns + from_ns - task.attained_ns
        if due_ns >= task.ends_ns:
            return
        if due_ns <= now_ns and site.anywhere and self._gives_way(site, task, now_ns):
            return
        if not task.check_serial or from_ns < task.check_from_ns:
            self._plan_check(site, task, now_ns, from_ns)

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

    def _watch(self, site: Site, task: ModelTask, now_ns: int) -> None:
        """Schedule the running task's check at the first relevant point."""
        if site.outranked_at_ns is None:
            if site.waiting():
                self._plan_check(site, task, now_ns, 0)
            return
        from_ns = site.outranked_at_ns(task)
        if from_ns is not None:
            due_ns = task.charged_ns + from_ns - task.attained_ns
            if due_ns < task.ends_ns:
                self._plan_check(site, task, now_ns, from_ns)

    def _plan_check(
        self, site: Site, task: ModelTask, now_ns: int, from_ns: int
    ) -> None:
        """Schedule a check at the next point after ``from_ns`` of service."""
        every_ns = site.check_every_ns
        begun_ns = max(now_ns, task.charged_ns)
        attained_ns = task.attained_ns + begun_ns - task.charged_ns
        if (
            attained_ns % every_ns
            or not begun_ns == now_ns > task.charged_ns
            # The check at this point is done if other tasks were waiting.
            or (site.outranked_at_ns is not None and site.waiting() > 1)
        ):
            attained_ns += 1
        # Round up to the next point.
        at_attained_ns = -(-max(attained_ns, from_ns) // every_ns) * every_ns
        at_ns = task.charged_ns + at_attained_ns - task.attained_ns
        if at_ns < task.ends_ns:
            task.check_from_ns = from_ns
            site.settled = at_attained_ns <= site.firm_ns
            task.check_serial = self._push(at_ns, task)

    def _set_alarm(self, site: Site, now_ns: int) -> None:
        """Schedule an event for the time at which a waiting task becomes ready."""
        if not site.may_idle:
            return
        for plane in site.planes:
            event_ns = plane.next_event_ns(now_ns)
            if event_ns is not None and event_ns < site.alarm_ns:
                site.alarm_ns = event_ns
                self._push(event_ns, site)


def _by_urgency(task: ModelTask) -> tuple[int, int]:
    return -task.level, -task.number
