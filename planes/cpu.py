"""CPU shared by several planes, as a kernel shares a core among threads.

Apache Kafka's planes are threads, and the kernel schedules them. Trio's tasks share one
thread and Trio has no priorities. Therefore the planes of one process take turns at a
single CPU *token*, which this object assigns. The rule is the fair share of Linux' CFS:
the plane that has received least CPU runs next. A plane that wakes after idling starts
one quantum below the least count of the others, so it preempts at the next preemption
point. Idle time and waits for devices earn no further credit.

Bound: over any time in which two planes both have a task ready, neither receives more
than two quanta and two slices beyond the other. With more than two planes, the bound is
three quanta and two slices.

With one plane, the plane's own policy decides alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from planes.plane import PlaneCore
from planes.task import Task, TaskPlane


class Cpu:
    """Fair-share CPU of the planes of one process. Cost: O(planes) per call."""

    def __init__(self, planes: Sequence[PlaneCore], *, quantum_ns: int) -> None:
        assert planes
        self.planes = tuple(planes)
        self._alone = planes[0] if len(planes) == 1 else None
        self._quantum_ns = quantum_ns
        self._received_ns: dict[TaskPlane, int] = dict.fromkeys(self.planes, 0)
        # Planes that were ready at the last pick or wake, and the least service among
        # them, from which a waking plane starts. The latter never decreases.
        self._active: set[TaskPlane] = set()
        self._base_ns = 0

    def wake(self, plane: TaskPlane) -> None:
        """Record that a task of ``plane`` has become ready."""
        if self._alone is not None or plane in self._active or not plane.can_pick():
            return
        received_ns = self._received_ns
        if self._active:
            least_ns = min(received_ns[it] for it in self._active)
            self._base_ns = max(self._base_ns, least_ns)
            floor_ns = self._base_ns - self._quantum_ns
        else:
            # After a fully idle time no plane has a claim to earlier service.
            floor_ns = self._base_ns = max(received_ns.values())
        received_ns[plane] = max(received_ns[plane], floor_ns)
        self._active.add(plane)

    def resize(self, plane: PlaneCore, seats: int, now_ns: int) -> None:
        """Change a plane's number of seats, which other planes may borrow."""
        plane.resize(seats, now_ns)
        for each in self.planes:
            self.wake(each)

    def pick(self, now_ns: int) -> Task | None:
        """Seat and return the task that runs next, or None if no plane has one."""
        if self._alone is not None:
            return self._alone.pick(now_ns)
        for plane in sorted(self.planes, key=self._received_ns.__getitem__):
            task = plane.pick(now_ns)
            if task is not None:
                self._active.add(plane)
                return task
            self._active.discard(plane)
        return None

    def charge(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill CPU time to the task and to its plane."""
        plane = task.plane
        if self._alone is None:
            self._received_ns[plane] += used_ns
        plane.charge(task, used_ns, now_ns)

    def finish(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill the rest of a turn and release the task (`PlaneCore.finish`)."""
        plane = task.plane
        if self._alone is None:
            self._received_ns[plane] += used_ns
        plane.finish(task, used_ns, now_ns)

    def debit(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill CPU used outside of a task's turns to its flow and to its plane."""
        plane = task.plane
        if self._alone is None:
            self._received_ns[plane] += used_ns
        plane.debit(task, used_ns, now_ns)

    def must_yield(self, task: Task, now_ns: int) -> bool:
        """Return whether the task's policy, or another plane's turn, preempts it."""
        own = task.plane
        if own.must_yield(task, now_ns):
            return True
        if self._alone is not None:
            return False
        due_ns = self._received_ns[own] - self._quantum_ns
        return any(
            other is not own and self._received_ns[other] <= due_ns and other.can_pick()
            for other in self.planes
        )

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return when ``pick`` may return a task without any event; None if never."""
        if self._alone is not None:
            return self._alone.next_event_ns(now_ns)
        due_ns = None
        for plane in self.planes:
            event_ns = plane.next_event_ns(now_ns)
            if event_ns is not None and (due_ns is None or event_ns < due_ns):
                due_ns = event_ns
        return due_ns
