"""A job on its way through the broker: time stamps, and the coroutine that serves it.

Stamps are recorded, durations derived (Kafka's ``RequestChannel.updateRequestMetrics``
does the same), so that the phases of a request always sum to its total::

    received ─ request queue ─ dequeued ─ local + suspended ─ local_done ─ remote ─
    remote_done ─ response queue ─ response_dequeued ─ response send ─ response_sent

All stamps are integer nanoseconds on the plane's clock; -1 means not yet.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from schedulers import Job

# Returns the handler's coroutine, or its result if the handler awaited nothing.
Serve = Callable[[], Any]
GoOn = Callable[[], None]


class BrokenRule(AssertionError):
    """Raised if a handler breaks an invariant of planes; must not be suppressed."""


class TaskPlane(Protocol):
    """The interface of a plane for its tasks (`planes.PlaneCore`)."""

    name: str

    def admits(self, task: Task) -> bool:
        """Return whether ``offer`` would take the task now."""

    def offer(self, task: Task, now_ns: int) -> bool:
        """Admit a new task, or refuse it because the queue is full."""

    def charge(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill CPU time to a seated task."""

    def debit(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill CPU used outside of a task's turns to its flow."""

    def finish(self, task: Task, used_ns: int, now_ns: int) -> None:
        """Bill the rest of a turn and release a finished task."""

    def can_pick(self) -> bool:
        """Return whether a task waits for the CPU: in a seat, or with a seat free."""

    def must_yield(self, task: Task, now_ns: int) -> bool:
        """Return whether another task is to be served before this seated task."""

    def suspend(self, task: Task, now_ns: int) -> None:
        """Return a seated task that must yield to the waiting tasks."""

    def step_back(self, task: Task, now_ns: int) -> None:
        """Return a seated task to the waiting tasks, for example to wait for a lock."""

    def sleep(self, task: Task, now_ns: int) -> None:
        """Suspend a seated task until ``resume``; its local work is unfinished."""

    def park(self, task: Task, now_ns: int) -> None:
        """Suspend a seated task until ``resume``; its local work is done."""

    def block(self, task: Task, now_ns: int) -> None:
        """Take a task that waits for a device out of service; it keeps its seat."""

    def unblock(self, task: Task, now_ns: int) -> None:
        """Queue a blocked task for the CPU."""

    def resume(self, task: Task, now_ns: int) -> None:
        """Queue a parked task again."""


class AwaitedLock(Protocol):
    """The interface of a lock for its waiters (`planes.lock.TaskLock`)."""

    holder: Task | None

    def grant(self, task: Task) -> None:
        """Give the free lock to a task."""

    def runner(self, task: Task) -> Task:
        """Return the task that runs in the turn of ``task``, a waiter of this lock."""


class Locking:
    """Lock state of a task: the number of locks held, and the awaited lock.

    ``lent_ns`` is the CPU of its turns that was lent to holders, less the CPU that it
    received in the turns of other tasks.
    """

    __slots__ = ("held", "lent_ns", "waits_for")

    def __init__(self) -> None:
        self.held = 0
        self.lent_ns = 0
        self.waits_for: AwaitedLock | None = None


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Task(Job):
    """A job with its stamps; ``serve`` begins it, ``done`` receives the result.

    ``serve`` returns the coroutine of the handler, which is then run in slices, or the
    result itself if the handler awaits nothing. ``done`` is called synchronously,
    exactly once, in the slice that ends the task. ``refusal`` is the reason if
    admission rejected the task; ``serve`` must then respond with the error of that
    reason. ``subject`` belongs to the creator of the task: the request, in a broker.
    """

    serve: Serve | None = None
    done: Callable[[Task, Any], None] | None = None
    subject: object = None
    coroutine: Coroutine[Any, Any, Any] | None = None
    # Resumes a handler that is back from a device in the worker that waited with it.
    go_on: GoOn | None = None
    # The plane that the task has entered.
    plane: TaskPlane = field(init=False)
    # Lock state; None until the first lock is requested.
    locking: Locking | None = None

    # Fields of admission, as in `planes.admission.AdmissionJob`.
    can_be_refused: bool = False
    refusal: str | None = None
    throttled_until_ns: int = 0

    received_ns: int = -1
    enqueued_ns: int = -1
    dequeued_ns: int = -1
    local_done_ns: int = -1
    remote_done_ns: int = -1
    response_dequeued_ns: int = -1
    response_sent_ns: int = -1
    suspended_ns: int = 0
    suspended_since_ns: int = -1
    # CPU attained at the start of its time slice (`planes.time_slices`).
    slice_began_ns: int = 0
    # CPU used for its intake and before its turns; billed to its flow when it is done.
    prior_ns: int = 0
    # CPU used by its own handler, set once the handler has returned. The rest of its
    # bill is `prior_ns` and the handling of its response.
    service_ns: int = 0
    preemptions: int = 0

    def __repr__(self) -> str:
        return Job.__repr__(self) if self.subject is None else repr(self.subject)

    def own_cpu_ns(self) -> int:
        """Return the CPU used for this task so far, in the turns of any task.

        ``attained_ns`` is the CPU of its own turns, in which a lock holder may have
        run. After the end of the task, ``attained_ns`` is its complete bill.
        """
        if self.locking is None:
            return self.attained_ns
        return self.attained_ns - self.locking.lent_ns

    def phases(self) -> Phases:
        """Derive the durations of a task whose response has been sent."""
        assert self.response_sent_ns >= 0, "the request is not finished"
        return Phases(
            request_queue_ns=self.dequeued_ns - self.received_ns,
            local_ns=self.local_done_ns - self.dequeued_ns - self.suspended_ns,
            suspended_ns=self.suspended_ns,
            remote_ns=self.remote_done_ns - self.local_done_ns,
            response_queue_ns=self.response_dequeued_ns - self.remote_done_ns,
            response_send_ns=self.response_sent_ns - self.response_dequeued_ns,
            total_ns=self.response_sent_ns - self.received_ns,
        )


class Phases(NamedTuple):
    """Kafka's phases of one request, and suspended time; they sum to ``total_ns``."""

    request_queue_ns: int
    local_ns: int
    suspended_ns: int
    remote_ns: int
    response_queue_ns: int
    response_send_ns: int
    total_ns: int
