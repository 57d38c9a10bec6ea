"""Planes that lend each other their idle seats, and take them back.

KIP-291's planes keep their handlers to themselves: a controller's second request waits
for the one control handler while data handlers idle, and at saturation the idle control
handler is lost to the data. Here a plane may use another one's idle seats, as long as
the owner has no use for them: a borrowed seat is given back at the borrower's next
preemption point after the owner's own requests need it.

Laws:

1. Work conservation: if a plane that may borrow has a request waiting, every seat of
   the pool is taken or wanted by its owner. So with lending to control, control never
   waits while a handler idles.
2. Restraint: a plane that wants no more than its own seats waits at most for one slice
   of a borrower's. (A task that waits for a device keeps its seat until it returns.)

Source: lending and borrowing of seats in Kubernetes' API priority and fairness, but at
once and not every ten seconds; DARC (Demoulin et al., SOSP 2021) steals one way only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from planes.plane import PlaneCore
from planes.task import Task


class Lending:
    """The seats of two planes as one pool, in which each has its own.

    ``borrowers`` may use idle seats of the other. Where seats are separate servers,
    this also picks the next task (as `planes.Cpu` does where they share a CPU). Cost:
    O(1) per call.
    """

    def __init__(
        self, planes: Sequence[PlaneCore], borrowers: Collection[PlaneCore]
    ) -> None:
        first, second = planes
        self.planes = (first, second)
        self._borrowers = frozenset(borrowers)
        self._other = {first: second, second: first}
        for plane in planes:
            assert plane.pool is None, plane
            plane.pool = self

    @property
    def seats(self) -> int:
        """Return the number of seats that both have together."""
        first, second = self.planes
        return first.seats_in_use + second.seats_in_use

    def has_seat(self, plane: PlaneCore) -> bool:
        """Return whether the plane may seat another task."""
        other = self._other[plane]
        free = self.seats - plane.seated - other.seated
        if plane.seated < plane.seats:
            return free > 0
        return plane in self._borrowers and free > self._wanted(other)

    def reclaims(self, plane: PlaneCore) -> bool:
        """Return whether the plane has to give a seat back at a preemption point."""
        if plane.seated <= plane.seats_in_use:
            return False
        other = self._other[plane]
        return self.seats - plane.seated - other.seated < self._wanted(other)

    def _wanted(self, owner: PlaneCore) -> int:
        """Count the seats of its own that a plane could use now."""
        return min(len(owner.scheduler), max(0, owner.seats - owner.seated))

    # ---- where each seat is a server --------------------------------------------

    def pick(self, now_ns: int) -> Task | None:
        """Seat and return the task that runs next, or None if there is none.

        The planes are asked in any order: only what their owners leave is borrowed.
        """
        for plane in self.planes:
            task = plane.pick(now_ns)
            if task is not None:
                return task
        return None

    def charge(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill service to the task and to its plane."""
        plane = task.plane
        plane.charge(task, used_ns, now_ns)

    def finish(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill the rest of a turn and let a task go (`PlaneCore.finish`)."""
        plane = task.plane
        plane.finish(task, used_ns, now_ns)

    def must_yield(self, task: Task, now_ns: int) -> bool:
        """Return whether the task's policy, or the owner of its seat, preempts it."""
        plane = task.plane
        return plane.must_yield(task, now_ns)
