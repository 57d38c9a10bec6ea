"""One CPU shared by several planes, as a kernel shares a core among threads.

Apache Kafka's planes are threads, and the kernel decides whose turn it is. Trio's tasks
share one thread and Trio has no priorities, so the planes of one process take turns at
a single CPU *token*, which this object assigns. It follows the fair-share rule of
Linux' CFS: the plane that has received least CPU goes next; a plane that wakes after
idling is placed a quantum behind the others' count, hence preempts at the next
preemption point, but cannot save up idle time, nor time spent waiting for devices, as
credit.

Bound: over any time in which two planes both have a task ready, neither receives more
than two quanta and two slices beyond the other, whatever went before. Where there are
more than two planes, the bound is three quanta and two slices.

With one plane this adds nothing to the plane's own policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from planes.plane import PlaneCore
from planes.task import Task, TaskPlane


class Cpu:
    """Whose turn it is among the planes of one process. Cost: O(planes) per call."""

    def __init__(self, planes: Sequence[PlaneCore], *, quantum_ns: int) -> None:
        assert planes
        self.planes = tuple(planes)
        self._alone = planes[0] if len(planes) == 1 else None
        self._quantum_ns = quantum_ns
        self._received_ns: dict[TaskPlane, int] = dict.fromkeys(self.planes, 0)
        # Planes that were ready at the last look, and the least service that the ready
        # ones have received. A waking plane is measured against it. Never decreases.
        self._active: set[TaskPlane] = set()
        self._base_ns = 0

    def wake(self, plane: TaskPlane) -> None:
        """Note that a task has come to wait in ``plane``."""
        if self._alone is not None or plane in self._active or not plane.can_pick():
            return
        received_ns = self._received_ns
        if self._active:
            least_ns = min(received_ns[it] for it in self._active)
            self._base_ns = max(self._base_ns, least_ns)
            floor_ns = self._base_ns - self._quantum_ns
        else:
            # All were idle: no plane is owed service.
            floor_ns = self._base_ns = max(received_ns.values())
        received_ns[plane] = max(received_ns[plane], floor_ns)
        self._active.add(plane)

    def resize(self, plane: PlaneCore, seats: int, now_ns: int) -> None:
        """Give a plane another number of seats, which others may borrow."""
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
        """Bill the rest of a turn and let a task go (`PlaneCore.finish`)."""
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
        """When time alone may let ``pick`` return a task, or None if never."""
        if self._alone is not None:
            return self._alone.next_event_ns(now_ns)
        due_ns = None
        for plane in self.planes:
            event_ns = plane.next_event_ns(now_ns)
            if event_ns is not None and (due_ns is None or event_ns < due_ns):
                due_ns = event_ns
        return due_ns
