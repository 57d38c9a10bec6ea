"""Background duties, isolated from each other: a failed piece of work is retried.

Duties are timers of requests and groups, and upkeep of logs. A fault in one duty must
not end the process, stop the other duties, or be retried in a busy loop. A failed duty
is therefore logged and paused for a second. A duty with many objects itself ensures
that the fault of one object does not block the others.

A duty that may take long is a `PlaneDuty`: its pieces are tasks of a plane, scheduled
like requests by the configured policy.

Pure module: clocks are passed in, and the driver calls `Duty.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from logging import getLogger
from typing import Final

from broker.observation.logs import fields
from broker.observation.metric import Metric
from broker.observation.supervisor import breaks_a_plane
from broker.requests.internal_tasks import Submit

logger = getLogger(__name__)

RETRY_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Duty:
    """A duty: the time of its next piece, and the function that does the piece."""

    name: str
    next_ns: Callable[[], int | None]
    work: Callable[[int], object]
    failures: int = 0
    _resting_until_ns: int = 0

    def due_ns(self) -> int | None:
        """Return when the next `run` is due; None: only after an event."""
        try:
            at_ns = self.next_ns()
        except Exception:  # `run` raises it again, and counts it
            at_ns = self._resting_until_ns
        return None if at_ns is None else max(at_ns, self._resting_until_ns)

    def run(self, now_ns: int) -> None:
        """Do a piece if one is due; log and count its exceptions."""
        if now_ns < self._resting_until_ns:
            return
        try:
            at_ns = self.next_ns()
            if at_ns is not None and at_ns <= now_ns:
                self.work(now_ns)
        except Exception as error:
            if breaks_a_plane(error):
                raise
            self.failed(error, now_ns)

    def rest(self, until_ns: int) -> None:
        """Pause the duty until a time."""
        self._resting_until_ns = max(self._resting_until_ns, until_ns)

    def failed(self, error: Exception, now_ns: int) -> None:
        """Record a failed piece, and pause the duty."""
        self.failures += 1
        self.rest(now_ns + RETRY_NS)
        logger.error(
            "a background duty failed and is tried again",
            extra=fields(duty=self.name, fault=repr(error)),
            exc_info=error,
        )


class PlaneDuty:
    """A duty whose pieces are tasks of a plane; `run` only submits a piece.

    A piece is one ``step`` of bounded work. While it waits or is in service, no other
    piece is due. The next piece is submitted at its end, unless it is due later; then
    ``moved`` is called.
    """

    def __init__(
        self,
        name: str,
        request_class: str,
        next_ns: Callable[[], int | None],
        step: Callable[[], object],
        *,
        submit: Submit,
        now_ns: Callable[[], int],
        moved: Callable[[], None],
    ) -> None:
        self._duty = Duty(name, next_ns, self._submit)
        self._class = request_class
        self._step = step
        self._submit_task = submit
        self._now_ns = now_ns
        self._moved = moved
        self._is_submitted = self._is_running = False

    @property
    def name(self) -> str:
        """The name of the duty."""
        return self._duty.name

    @property
    def failures(self) -> int:
        """The number of failed pieces."""
        return self._duty.failures

    def due_ns(self) -> int | None:
        """Return when the next `run` is due; None: only after an event."""
        return None if self._is_submitted else self._duty.due_ns()

    def run(self, now_ns: int) -> None:
        """Submit a piece if one is due."""
        if self._is_submitted:
            return
        self._is_running = True
        try:
            self._duty.run(now_ns)
        finally:
            self._is_running = False

    def _submit(self, now_ns: int) -> None:
        self._is_submitted = True
        self._submit_task(self._class, self.name, self._work, self._done)

    def _work(self) -> None:
        try:
            self._step()
        except Exception as error:  # ends this piece only
            if breaks_a_plane(error):
                raise
            self._duty.failed(error, self._now_ns())

    def _done(self, pause_ns: int) -> None:
        self._is_submitted = False
        if self._is_running:
            return
        if pause_ns:
            self._duty.rest(self._now_ns() + pause_ns)
        else:
            self.run(self._now_ns())
        if not self._is_submitted:
            self._moved()


def duty_metrics(duties: Iterable[Duty | PlaneDuty]) -> Iterator[Metric]:
    """Iterate over the numbers of failures of each duty."""
    for duty in duties:
        yield Metric(
            name="doorkeeper_background_failures",
            kind="counter",
            value=duty.failures,
            labels={"duty": duty.name},
            suffix="_total",
        )
