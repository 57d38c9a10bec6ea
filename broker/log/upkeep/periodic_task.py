"""Periodic work as an object: the caller runs its next short step when it has time.

A step runs on the caller's thread and is short. A blocking call goes to `Calls`, which
may use other threads; until it has returned the task has no next step.
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
        """Make a call, sooner or later; then call ``done`` on the caller's thread."""

    def run_all(
        self, calls: Sequence[BlockingCall], threads: int | None = None
    ) -> None:
        """Make calls that do not disturb each other, and return when all have returned.

        By so many ``threads``, or as many as there are for all else. For start and
        stop: it works on a closed object, too.
        """

    def close(self) -> None:
        """Return when no call of `start` is running; none begins afterwards."""


class CallsHere:
    """Makes calls on the caller's thread: for storage in memory, which never waits."""

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
        """Do nothing: none is running."""


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
        """Return when `step` has something to do; None while a call is away."""
        return None if self._call_is_away else self._due_ns

    @property
    def is_idle(self) -> bool:
        """Return whether no round is under way."""
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
                except Exception as fault:  # no thread can be started, perhaps
                    self._call_done(fault)

    def _end(self, now_ns: int) -> None:
        self._round = None
        self._due_ns = now_ns + self._interval_ms() * _NS_PER_MS

    def _call_done(self, error: Exception | None) -> None:
        self._call_is_away = False
        self._error = error
        self._moved()
