"""Planes that lend each other their idle seats, and take them back.

In KIP-291 each plane has handlers of its own. A controller's second request waits for
the one control handler while data handlers idle, and at saturation data requests cannot
use the idle control handler. Here a plane may use idle seats of the other plane. A
borrowed seat is returned at the borrower's next preemption point after the owner's own
requests need it.

Laws:

1. Work conservation: if a plane that may borrow has a request waiting, every seat of
   the pool is occupied or needed by its owner. With lending to the control plane, a
   control request never waits while a handler idles.
2. Restraint: a plane that needs no more than its own seats waits at most for one slice
   of a borrower. (A task that waits for a device keeps its seat until it returns.)

Source: lending and borrowing of seats in Kubernetes' API priority and fairness, which
adjusts seats every ten seconds, where this module lends at once. DARC (Demoulin et al.,
SOSP 2021) steals in one direction only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from planes.plane import PlaneCore
from planes.task import Task


class Lending:
    """Pool of the seats of two planes; each plane owns some of them.

    ``borrowers`` may use idle seats of the other plane. Where seats are separate
    servers, the pool also picks the next task (as `planes.Cpu` does where they share a
    CPU). Cost: O(1) per call.
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
        """Return the number of seats of both planes together."""
        first, second = self.planes
        return first.seats_in_use + second.seats_in_use

    def has_seat(self, plane: PlaneCore) -> bool:
        """Return whether the plane may seat another task."""
        other = self._other[plane]
        free = self.seats - plane.seated - other.seated
        if plane.seated < plane.seats:
            return free > 0
        return plane in self._borrowers and free > self._demand(other)

    def reclaims(self, plane: PlaneCore) -> bool:
        """Return whether the plane has to return a seat at a preemption point."""
        if plane.seated <= plane.seats_in_use:
            return False
        other = self._other[plane]
        return self.seats - plane.seated - other.seated < self._demand(other)

    def _demand(self, owner: PlaneCore) -> int:
        """Return how many free seats of its own a plane could use now."""
        return min(len(owner.scheduler), max(0, owner.seats - owner.seated))

    # ---- seats as separate servers ----------------------------------------------

    def pick(self, now_ns: int) -> Task | None:
        """Seat and return the task that runs next, or None if there is none.

        The order of the planes is arbitrary: only seats without use to their owner are
        borrowed.
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
        """Bill the rest of a turn and release the task (`PlaneCore.finish`)."""
        plane = task.plane
        plane.finish(task, used_ns, now_ns)

    def must_yield(self, task: Task, now_ns: int) -> bool:
        """Return whether the task's policy, or the owner of its seat, preempts it."""
        plane = task.plane
        return plane.must_yield(task, now_ns)
