"""The synchronous core of one plane: a request queue, its scheduler and its seats.

``PlaneCore`` is the single place where a request arrives, is picked, charged,
suspended, resumed and released. It runs and awaits nothing: each method returns the
next decision, and a shell executes it. There are two shells: the event heap of the
model world, and the dispatcher, which runs handlers in virtual time and live. Both
share this class, so policies and bookkeeping have one implementation. It reads no
clock; callers pass ``now_ns``.

A *seat* corresponds to a request handler thread of Kafka (``num.io.threads``). A task
holds one in service, while it waits for a device, and while its time slice is over
(``planes.time_slices``). Preempted tasks and tasks in purgatory hold no seat. The
queue's bound counts requests that were never served, as ``queued.max.requests`` does.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol, cast

from planes.admission import THROTTLED, Admission, Block
from planes.task import Task
from planes.time_slices import TimeSlices
from schedulers import NEVER, Scheduler, foresight_of


class SeatPool(Protocol):
    """Seats of several planes, which they lend each other (`planes.lending`)."""

    def has_seat(self, plane: PlaneCore) -> bool:
        """Return whether the plane may seat another task."""

    def reclaims(self, plane: PlaneCore) -> bool:
        """Return whether the plane has to return a seat at a preemption point."""


class PlaneCore:
    """A request queue with one scheduler and ``seats`` requests in progress at most."""

    def __init__(
        self, name: str, scheduler: Scheduler, admission: Admission, *, seats: int
    ) -> None:
        assert seats >= 1, seats
        self.name = name
        self.scheduler = scheduler
        self.admission = admission
        self._judges = admission.judges
        self._leave_suffices = foresight_of(scheduler).leave_suffices
        # The bound of Kafka's rule, checked here to save a call per request.
        self._bound = admission.capacity if isinstance(admission, Block) else None
        # Counts of rejected or throttled tasks, by class and reason.
        self.held_back: Counter[tuple[str, str]] = Counter()
        self.seats = seats
        self._slices = TimeSlices()
        self._aside = self._slices.aside
        # Number of removed seats that were still occupied at the last check.
        self._leaving = 0
        # The pool to which idle seats are lent.
        self.pool: SeatPool | None = None
        self.queued = 0
        self.seated = 0
        self.away = 0
        self.attained_ns = 0
        # The value of `occupied_ns` while no seat is occupied.
        self._occupied_ns = 0
        # Number of times that a free seat stayed empty although a task waited.
        self.idled = 0

    def __repr__(self) -> str:
        return (
            f"<plane {self.name}: {self.queued} queued of {self.admission.capacity}, "
            f"{len(self.scheduler)} waiting, {self.seated} of {self.seats} seated, "
            f"{self.away} away>"
        )

    def share_cpu(self, slice_ns: int | None) -> None:
        """Give seated tasks time slices of a shared CPU, if the policy never preempts.

        Call it before the first task arrives, where all seats share one CPU.
        """
        assert not self.seated, self
        if self.scheduler.preempts == NEVER:
            self._slices = TimeSlices(slice_ns)
            self._aside = self._slices.aside

    def admits(self, task: Task) -> bool:
        """Return whether ``offer`` would take the task now."""
        return self.admission.admits(task, self.queued)

    def offer(self, task: Task, now_ns: int) -> bool:
        """Admit a new task, or refuse it because the queue is full."""
        bound = self._bound
        if bound is None:
            if not self.admission.admits(task, self.queued):
                return False
        elif self.queued >= bound:
            return False
        task.arrived_ns = task.enqueued_ns = now_ns
        task.plane = self
        if self._judges:
            self.admission.entered(task, self.queued, now_ns)
        self.queued += 1
        self.scheduler.arrive(task, now_ns)
        return True

    def enter(self, task: Task, now_ns: int) -> None:
        """Enqueue an internal task, without admission and regardless of the bound."""
        task.arrived_ns = task.enqueued_ns = task.dequeued_ns = now_ns
        task.plane = self
        self.scheduler.arrive(task, now_ns)

    def has_seat(self) -> bool:
        """Return whether an own or a borrowed seat is available."""
        if self.pool is None:
            return self.seated < self.seats
        return self.pool.has_seat(self)

    def resize(self, seats: int, now_ns: int) -> None:
        """Change the number of seats; a task in a removed seat keeps it."""
        assert seats >= 1, seats
        self._leaving = max(0, min(self.seated, self.seats_in_use) - seats)
        self.seats = seats
        self.scheduler.resize(seats, now_ns)

    @property
    def seats_in_use(self) -> int:
        """Return the number of seats, including removed ones that are occupied."""
        self._leaving = min(self._leaving, max(0, self.seated - self.seats))
        return self.seats + self._leaving

    def occupied_ns(self, now_ns: int) -> int:
        """Return how long seats have been occupied so far, summed over the seats."""
        return self._occupied_ns + self.seated * now_ns

    def can_pick(self) -> bool:
        """Return whether a task waits for the CPU: in a seat, or with a seat free."""
        return bool(self._aside) or self._can_seat()

    def _can_seat(self) -> bool:
        return len(self.scheduler) > 0 and self.has_seat()

    def pick(self, now_ns: int) -> Task | None:
        """Return the task to serve next, seated; None if no task can be served."""
        if self._aside and (
            self._slices.is_due(self.attained_ns) or not self._can_seat()
        ):
            return self._go_on(now_ns)
        if self.seated >= self.seats if self.pool is None else not self.has_seat():
            return None
        task: Task | None = self.scheduler.pick(now_ns)  # type: ignore[assignment]  # all are tasks
        if task is None:
            if self._aside:
                return self._go_on(now_ns)
            if len(self.scheduler):
                self.idled += 1
            return None
        self.seated += 1
        self._occupied_ns -= now_ns
        if task.dequeued_ns < 0:
            task.dequeued_ns = now_ns
            self.queued -= 1
            if self._judges:
                self._judge(task, now_ns)
        elif task.suspended_since_ns >= 0:
            task.suspended_ns += now_ns - task.suspended_since_ns
            task.suspended_since_ns = -1
        return task

    def _go_on(self, now_ns: int) -> Task:
        """Return the seated task whose slice comes next."""
        task = self._aside.popleft()
        if task.suspended_since_ns >= 0:
            task.suspended_ns += now_ns - task.suspended_since_ns
            task.suspended_since_ns = -1
        return task

    def charge(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill CPU time to a seated task."""
        assert used_ns >= 0, used_ns
        task.attained_ns += used_ns
        self.attained_ns += used_ns
        self.scheduler.ran(task, used_ns, now_ns)

    def must_yield(self, task: Task, now_ns: int) -> bool:
        """Return whether another task must be served before this seated task continues.

        True if another task outranks it, the owner of its seat needs the seat, or its
        slice is over.
        """
        if self._reclaimed() or (self._slices.is_over(task) and self.can_pick()):
            return True
        return self.scheduler.outranks(task, now_ns)

    def suspend(self, task: Task, now_ns: int) -> None:
        """Return a seated task that must yield to the waiting tasks, still runnable.

        The task gives up its seat, unless it yields because its slice is over.
        """
        task.preemptions += 1
        if self._reclaimed() or not self._slices.is_over(task):
            self.step_back(task, now_ns)
            return
        if task.local_done_ns < 0:
            task.suspended_since_ns = now_ns
        self._slices.set_aside(task, self.seats_in_use, self.attained_ns)

    def _reclaimed(self) -> bool:
        return self.pool is not None and self.pool.reclaims(self)

    def step_back(self, task: Task, now_ns: int) -> None:
        """Return a seated task to the waiting tasks, for example to wait for a lock."""
        self._wait_again(task, now_ns)
        self.scheduler.leave(task, now_ns, done=False)
        self.scheduler.resume(task, now_ns)

    def sleep(self, task: Task, now_ns: int) -> None:
        """Suspend a seated task until ``resume``; its local work is unfinished."""
        self.away += 1
        self._wait_again(task, now_ns)
        self.scheduler.leave(task, now_ns, done=False)

    def park(self, task: Task, now_ns: int) -> None:
        """Suspend a seated task until ``resume``; its local work is done."""
        if task.local_done_ns < 0:
            task.local_done_ns = now_ns
        self.seated -= 1
        self._occupied_ns += now_ns
        self.away += 1
        self.scheduler.leave(task, now_ns, done=False)

    def block(self, task: Task, now_ns: int) -> None:
        """Take a task that waits for a device out of service; it keeps its seat."""
        self.away += 1
        self.scheduler.leave(task, now_ns, done=False)

    def unblock(self, task: Task, now_ns: int) -> None:
        """Queue a blocked task for the CPU; it has no seat until it is picked."""
        self.away -= 1
        self._wait_again(task, now_ns)
        self.scheduler.resume(task, now_ns)

    def resume(self, task: Task, now_ns: int) -> None:
        """Queue a parked task again; it is never refused and not counted as queued."""
        self.away -= 1
        self.scheduler.resume(task, now_ns)

    def debit(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill CPU used outside of a task's turns to its flow."""
        assert used_ns >= 0, used_ns
        self.attained_ns += used_ns
        self.scheduler.debit(task, used_ns, now_ns)

    def finish(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill the rest of a turn, release a finished task and free its seat.

        The shell sets the last stamps, before it passes the response on.
        """
        # `charge`, inlined, as simulations call it millions of times.
        assert used_ns >= 0, used_ns
        task.attained_ns += used_ns
        self.attained_ns += used_ns
        scheduler = self.scheduler
        if not self._leave_suffices:
            scheduler.ran(task, used_ns, now_ns)
        self.seated -= 1
        self._occupied_ns += now_ns
        scheduler.leave(task, now_ns, done=True)

    def next_event_ns(self, now_ns: int) -> int | None:
        """Return when ``pick`` may return a task without any event; None if never."""
        if not self.can_pick():
            return None
        return self.scheduler.next_event_ns(now_ns)

    def check(self) -> None:
        """Assert every invariant of the plane and of its scheduler."""
        self.scheduler.check()
        waiting = [cast(Task, job) for job in self.scheduler.waiting()]
        assert len(waiting) == len(self.scheduler)
        assert self.queued == sum(task.dequeued_ns < 0 for task in waiting)
        assert len(self._aside) <= self.seated, self
        assert self.seated <= self.seats_in_use or self.pool is not None, self
        assert self.away >= 0, self

    def _judge(self, task: Task, now_ns: int) -> None:
        """Pass a task to admission at its first turn."""
        task.refusal = reason = self.admission.judge(task, now_ns)
        if reason is None and task.throttled_until_ns > now_ns:
            reason = THROTTLED
        if reason is not None:
            self.held_back[task.request_class, reason] += 1

    def _wait_again(self, task: Task, now_ns: int) -> None:
        """Free the seat; time until the next pick is suspended, not local."""
        self.seated -= 1
        self._occupied_ns += now_ns
        if task.local_done_ns < 0:
            task.suspended_since_ns = now_ns
