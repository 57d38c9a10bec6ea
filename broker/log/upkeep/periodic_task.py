"""Periodic work as an object: the caller runs its next short step when it is idle.

A step runs on the caller's thread and is short. A blocking call is passed to `Calls`,
which may use other threads. Until the call has returned, the task has no next step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.log.steps import BlockingCall, Steps

_NS_PER_MS: Final = 1_000_000

# Receives the outcome of a call: an error, or None.
Done = Callable[[Exception | None], None]


class Calls(Protocol):
    """Runner of blocking calls."""

    def start(self, call: BlockingCall, done: Done) -> None:
        """Make a call, possibly later; then call ``done`` on the caller's thread."""

    def run_all(
        self, calls: Sequence[BlockingCall], threads: int | None = None
    ) -> None:
        """Make independent calls, and return when all have returned.

        Use ``threads`` threads, or by default as many as for other calls. For start and
        stop of the broker; it also works after `close`.
        """

    def close(self) -> None:
        """Wait until no call of `start` is running; start no further calls."""


class CallsHere:
    """Calls on the caller's thread, for storage in memory, which never waits."""

    def start(self, call: BlockingCall, done: Done) -> None:
        """Make a call at once."""
        try:
            call()
        except Exception as error:
            done(error)
        else:
            done(None)

    def run_all(
        self, calls: Sequence[BlockingCall], threads: int | None = None
    ) -> None:
        """Make calls one after the other."""
        for call in calls:
            call()

    def close(self) -> None:
        """Do nothing: no call is running."""


class PeriodicTask:
    """A round of steps, and the start of the next one.

    ``interval_ms`` is called at the end of a round, ``not_before_ns`` before each step,
    ``failed`` with the error that ended a round early.
    """

    def __init__(
        self,
        begin: Callable[[], Steps[None]],
        interval_ms: Callable[[], int],
        *,
        first_ns: int,
        failed: Callable[[Exception], None],
        calls: Calls,
        moved: Callable[[], None] = lambda: None,
        not_before_ns: Callable[[int], int] = lambda now_ns: now_ns,
    ) -> None:
        self._begin = begin
        self._interval_ms = interval_ms
        self._due_ns = first_ns
        self._failed = failed
        self._calls = calls
        self._moved = moved
        self._not_before_ns = not_before_ns
        self._round: Steps[None] | None = None
        self._call_is_away = False
        self._error: Exception | None = None

    def next_ns(self) -> int | None:
        """Return when the next step is due; None while a call is in progress."""
        return None if self._call_is_away else self._due_ns

    @property
    def is_idle(self) -> bool:
        """Return whether no round is in progress."""
        return self._round is None

    def step(self, now_ns: int) -> None:
        """Do one step."""
        allowed_ns = self._not_before_ns(now_ns)
        if allowed_ns > now_ns:
            self._due_ns = allowed_ns
            return
        if self._round is None:
            self._round = self._begin()
        error, self._error = self._error, None
        try:
            call = next(self._round) if error is None else self._round.throw(error)
        except StopIteration:
            self._end(now_ns)
        except Exception as fault:
            self._failed(fault)
            self._end(now_ns)
        else:
            self._due_ns = now_ns
            if call is not None:
                self._call_is_away = True
                try:
                    self._calls.start(call, self._call_done)
                except Exception as fault:  # for example, no thread can be started
                    self._call_done(fault)

    def _end(self, now_ns: int) -> None:
        self._round = None
        self._due_ns = now_ns + self._interval_ms() * _NS_PER_MS

    def _call_done(self, error: Exception | None) -> None:
        self._call_is_away = False
        self._error = error
        self._moved()
