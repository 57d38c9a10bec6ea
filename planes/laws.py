"""Runtime checks of a plane: a counter for each broken law.

The contract of policies is tested before a policy is used
(``schedulers.contract.conformance``). These counters check the run itself, so a
measurement shows whether the policy kept its promises. Most are computed from the
stamps of finished tasks, at no cost to the planes; the rest is read once per window.

- *work conservation*: a seat stayed free although a job waited, and the policy is
  declared work-conserving.
- *starvation*: a job waited longer than ``patience_ns`` for its first turn, or was
  suspended for longer than that.
- *fairness*: in a window, a flow received more weighted service than a flow that waited
  throughout, by more than (2D + 1)(L_i/w_i + L_j/w_j). D is the number of seats, L a
  flow's largest observed cost (at least a quantum). The limit is the bound of SFQ(D)
  plus D turns on either side, as service is counted when a job ends. Checked only for
  policies that declare ``shares_by_weight``.
- *order*: of one flow and class, a later job was started first; or of one connection, a
  later request was answered first.
- *accounting*: the plane's counts of waiting jobs or occupied seats are wrong.

A law that was never broken counts 0. Cost: O(1) per finished task, and O(jobs waiting)
per window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, cast

from planes.plane import PlaneCore
from planes.task import Task
from schedulers import Job

WORK_CONSERVATION, STARVATION, FAIRNESS, ORDER, ACCOUNTING = LAWS = (
    "work_conservation",
    "starvation",
    "fairness",
    "order",
    "accounting",
)
WINDOW_NS: Final = 250_000_000
# Largest number of flows and connections whose latest start or answer is kept.
_KEPT: Final = 20_000


class Tolerance(NamedTuple):
    """Limits of a plane's laws: ``weight`` as in `SchedulerConfig`."""

    patience_ns: int
    quantum_ns: int
    weight: Callable[[Job], float]


class _Flow:
    """Counters of a flow: its latest arrival, that job's start, and its service.

    ``received_ns`` is the service in the present window, ``longest_ns`` its largest
    cost ever.
    """

    __slots__ = ("came_ns", "longest_ns", "received_ns", "started_ns", "weight")

    def __init__(self, weight: float, longest_ns: int) -> None:
        self.came_ns = self.started_ns = -1
        self.weight = weight
        self.longest_ns = longest_ns
        self.received_ns = 0


class Laws:
    """The laws of one plane."""

    def __init__(self, plane: PlaneCore, tolerance: Tolerance) -> None:
        self.plane = plane
        self.counts = dict.fromkeys(LAWS, 0)
        self._tolerance = tolerance
        self._patience_ns = tolerance.patience_ns
        self._fair = plane.scheduler.shares_by_weight
        # The weights have changed, and the plane may hold requests from before.
        self._is_changing = False
        self._ordered = plane.scheduler.keeps_flow_order
        self._flows: dict[tuple[str, str], _Flow] = {}
        self._answered: dict[int, int] = {}
        self._last_finished: tuple[_Flow, Task] | None = None
        self._window_ns = 0
        self._next_check_ns = 0
        # Number of seats at the beginning of the window.
        self._seats = plane.seats_in_use

    def reconfigure(self, tolerance: Tolerance) -> None:
        """Replace the limits.

        The fairness bound assumes constant weights. The check is therefore suspended
        until the plane is empty at the end of a window.
        """
        self._tolerance, self._patience_ns = tolerance, tolerance.patience_ns
        if self.plane.scheduler.shares_by_weight:
            self._fair, self._is_changing = False, True

    def finished(self, task: Task, connection: int, now_ns: int) -> None:
        """Check a task whose response has been sent on a connection."""
        came_ns, dequeued_ns = task.enqueued_ns, task.dequeued_ns
        patience_ns = self._patience_ns
        if dequeued_ns - came_ns > patience_ns or task.suspended_ns > patience_ns:
            self.counts[STARVATION] += 1
        flow = self._flows.get((task.request_class, task.flow)) or self._flow(task)
        if came_ns > flow.came_ns:
            if dequeued_ns < flow.started_ns:
                self._out_of_order()
            flow.came_ns, flow.started_ns = came_ns, dequeued_ns
        elif came_ns < flow.came_ns and dequeued_ns > flow.started_ns:
            self._out_of_order()
        number, answered = task.number, self._answered
        if answered.get(connection, -1) > number:
            self.counts[ORDER] += 1
        else:
            answered[connection] = number
        if self._fair:
            # The bill of a task is complete only after it has left the plane.
            if self._last_finished is not None:
                self._bill(*self._last_finished)
            self._last_finished = flow, task
        if now_ns >= self._next_check_ns:
            self._check_window(now_ns)

    def _out_of_order(self) -> None:
        if self._ordered:
            self.counts[ORDER] += 1

    def totals(self, now_ns: int) -> Mapping[str, int]:
        """Return all counters, including the tasks that starve at this moment."""
        starving = sum(
            now_ns - _since_ns(task) > self._patience_ns for task in self._waiting()
        )
        return {
            **self.counts,
            WORK_CONSERVATION: self._idled(),
            STARVATION: self.counts[STARVATION] + starving,
        }

    def _idled(self) -> int:
        return self.plane.idled if self.plane.scheduler.work_conserving else 0

    # ---- once per window ----------------------------------------------------------

    def _check_window(self, now_ns: int) -> None:
        plane = self.plane
        waiting = self._waiting()
        queued = sum(task.dequeued_ns < 0 for task in waiting)
        seats = plane.seats_in_use if plane.pool is None else plane.seated
        if queued != plane.queued or not 0 <= plane.seated <= seats:
            self.counts[ACCOUNTING] += 1
        if self._fair:
            self._compare(waiting)
        elif self._is_changing and not (waiting or plane.seated):
            self._flows.clear()
            self._last_finished = None
            self._fair, self._is_changing = True, False
        if len(self._flows) + len(self._answered) > _KEPT:
            self._flows.clear()
            self._answered.clear()
        self._window_ns, self._next_check_ns = now_ns, now_ns + WINDOW_NS
        self._seats = plane.seats_in_use

    def _compare(self, waiting: list[Task]) -> None:
        """Compare every flow with the flows that waited for all of the window."""
        behind = {
            self._flow(task)
            for task in waiting
            if task.dequeued_ns < 0 and task.enqueued_ns <= self._window_ns
        }
        turns = 2 * max(self.plane.seats, self._seats) + 1
        for late in behind:
            low, slack = late.received_ns / late.weight, late.longest_ns / late.weight
            self.counts[FAIRNESS] += any(
                it.received_ns / it.weight - low
                > turns * (slack + it.longest_ns / it.weight)
                for it in self._flows.values()
            )
        for flow in self._flows.values():
            flow.received_ns = 0

    def _bill(self, flow: _Flow, task: Task) -> None:
        used_ns = task.attained_ns
        flow.received_ns += used_ns
        flow.longest_ns = max(flow.longest_ns, used_ns, task.cost_ns)

    def _flow(self, task: Task) -> _Flow:
        key = (task.request_class, task.flow)
        flow = self._flows.get(key)
        if flow is None:
            tolerance = self._tolerance
            flow = _Flow(tolerance.weight(task), tolerance.quantum_ns)
            self._flows[key] = flow
        return flow

    def _waiting(self) -> list[Task]:
        return [cast(Task, job) for job in self.plane.scheduler.waiting()]


def _since_ns(task: Task) -> int:
    """Return the start of a task's present wait, by its stamps."""
    if task.dequeued_ns < 0:
        return task.enqueued_ns
    if task.suspended_since_ns >= 0:
        return task.suspended_since_ns
    return max(task.local_done_ns, task.dequeued_ns)


def total(laws: Iterable[Laws], now_ns: int) -> dict[str, int]:
    """Sum the counters of several planes."""
    counts = [each.totals(now_ns) for each in laws]
    return {law: sum(each[law] for each in counts) for law in LAWS}
