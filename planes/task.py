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
from typing import TYPE_CHECKING, Any, NamedTuple

from planes.admission import AdmissionJob

if TYPE_CHECKING:
    from planes.lock import Locking
    from planes.plane import PlaneCore

# Returns the handler's coroutine, or its result if nothing had to be awaited.
Serve = Callable[[], Any]
GoOn = Callable[[], None]


class BrokenRule(AssertionError):
    """A handler broke a rule that planes rest on: nothing may contain this."""


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Task(AdmissionJob):
    """A job with its stamps; ``serve`` begins it, ``done`` takes the result.

    ``serve`` returns the coroutine of its handler, which is then run in slices; or, of
    a task that is done in one slice and waits for nothing, the result itself.
    ``done`` is called synchronously, exactly once, on the slice that ended the task.
    If admission turned it away, ``serve`` is to answer just that.
    """

    serve: Serve | None = None
    done: Callable[[Task, Any], None] | None = None
    coroutine: Coroutine[Any, Any, Any] | None = None
    # Lets the handler, back from a device, go on where it waited for it.
    go_on: GoOn | None = None
    # The plane that took it in.
    plane: PlaneCore = field(init=False)
    # Locks held and waited for; None until the first one.
    locking: Locking | None = None

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
    # CPU that it took to take it in and to come to its turns; its flow pays for it
    # when it is done.
    prior_ns: int = 0
    # CPU used by its own handler, set once that has returned. The rest of its bill is
    # `prior_ns` and the handling of its response.
    service_ns: int = 0
    preemptions: int = 0

    def own_cpu_ns(self) -> int:
        """Return the CPU that was used for this task so far, in any task's turns.

        ``attained_ns`` is the CPU of its own turns, in which a lock holder may have
        run; after its end, all that it is billed.
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
    """Kafka's phases of one request, and our SuspendedTime; all but total sum to it."""

    request_queue_ns: int
    local_ns: int
    suspended_ns: int
    remote_ns: int
    response_queue_ns: int
    response_send_ns: int
    total_ns: int
