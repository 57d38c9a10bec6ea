"""Determinism of Trio, and a clock of whole nanoseconds: one seed, one run.

Trio shuffles every batch of runnable tasks with a private generator, and sorts it first
only when a private flag is set (Hypothesis sets it); ``MockClock`` alone leaves both as
they are, and six runs give six traces. `deterministic` sets both and puts them back.
The names are private, so Trio's version is bounded; a test fails when they change.

Time is an integer count of nanoseconds everywhere except in Trio, whose clock is a
float of seconds. Every reading is rounded to the nanosecond, and every jump is computed
from integers, so no error accumulates (a double holds nanoseconds exactly up to 100
days).

No threads run in virtual time, and no sockets are waited for: the clock would jump past
them.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, TypeVar

import trio
from trio._core import _run
from trio.testing import MockClock

from planes import Task

T = TypeVar("T")
_NS = 1_000_000_000
# Turns of Trio's loop between two polls of its sockets.
_TURNS_PER_POLL = 100


class VirtualClock:
    """A clock that jumps to the next deadline when every task is blocked."""

    def __init__(self) -> None:
        self.trio_clock = MockClock(autojump_threshold=0)
        # Asked at every step of every task: MockClock would ask the real clock first,
        # and make statistics of all tasks to find the next deadline.
        self._mock: Any = self.trio_clock
        vars(self.trio_clock).update(
            start_clock=self._start, current_time=self._now_s, _autojump=self._jump
        )
        self._read_s, self._read_ns = 0.0, 0
        # A heap of (moment, number), and the calls that are still to be made.
        self._alarms: list[tuple[float, int]] = []
        self._calls: dict[int, Callable[[], object]] = {}
        self._numbers = itertools.count()

    def now_ns(self) -> int:
        """Return the time since the start of the run."""
        now_s = self._mock._virtual_base
        if now_s != self._read_s:
            self._read_s, self._read_ns = now_s, round(now_s * _NS)
        return self._read_ns

    def now_ms(self) -> int:
        """Return the time in whole milliseconds, as the log's records have it."""
        return self.now_ns() // 1_000_000

    def jump(self, duration_ns: int) -> None:
        """Advance time for all tasks at once, as computing does under the GIL."""
        assert duration_ns >= 0, duration_ns
        if duration_ns:
            target_s = (self.now_ns() + duration_ns) / _NS
            self.trio_clock.jump(target_s - self._now_s())

    def call_at(self, moment_s: float, call: Callable[[], object]) -> int:
        """Call ``call`` at a moment, between steps of tasks; return its number."""
        number = next(self._numbers)
        heapq.heappush(self._alarms, (moment_s, number))
        self._calls[number] = call
        return number

    def forget(self, number: int) -> None:
        """Make a call no more, if it is still to be made."""
        self._calls.pop(number, None)

    async def park_until(self, lot: trio.lowlevel.ParkingLot, until_s: float) -> None:
        """Park in ``lot``, whose only task this is, until unparked or a moment.

        The moment wakes the task as a deadline of Trio's would, without its exception.
        """
        number = self.call_at(until_s, lot.unpark)
        try:
            await lot.park()
        finally:
            self.forget(number)

    def _start(self) -> None:
        MockClock.start_clock(self.trio_clock)
        runner: Any = _run.GLOBAL_RUN_CONTEXT.runner
        runner.io_manager = _JumpingIo(runner, self._jump, self._ring)

    def _now_s(self) -> float:
        now_s: float = self._mock._virtual_base
        return now_s

    def _jump(self) -> None:
        """Jump to the next deadline or alarm, if it is to come."""
        next_s = _run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        alarms = self._alarms
        while alarms and alarms[0][1] not in self._calls:
            heapq.heappop(alarms)
        if alarms:
            next_s = min(next_s, alarms[0][0])
        sleep_s = next_s - self._now_s()
        if 0 < sleep_s < inf:
            self._mock.jump(sleep_s)

    def _ring(self) -> None:
        """Make the calls whose moment has come."""
        alarms, now_s = self._alarms, self._now_s()
        while alarms and alarms[0][0] <= now_s:
            call = self._calls.pop(heapq.heappop(alarms)[1], None)
            if call is not None:
                call()


class _JumpingIo:
    """Trio's I/O manager, with jumps of the clock in place of polls.

    Trio would poll its sockets, jump, and poll once more. In virtual time none has
    events but the one that wakes the loop, for a signal.
    """

    def __init__(
        self, runner: Any, jump: Callable[[], None], ring: Callable[[], None]
    ) -> None:
        self._runner = runner
        self._real: Any = runner.io_manager
        self._jump = jump
        self._ring = ring
        self._turns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_events(self, timeout_s: float) -> Sequence[tuple[int, int]]:
        """Return the events of sockets, if any; jump if every task is blocked."""
        events: Sequence[tuple[int, int]] = ()
        self._turns += 1
        # The loop itself waits for one socket.
        if not self._turns % _TURNS_PER_POLL or len(self._real._registered) > 1:
            events = self._real.get_events(timeout_s)
        runner = self._runner
        if not (events or runner.runq or runner.waiting_for_idle):
            self._jump()
        self._ring()
        return events


class JumpTimer:
    """A `DeadlineTimer` without a task: the clock makes the calls."""

    def __init__(
        self,
        clock: VirtualClock,
        next_expiry_ns: Callable[[], int | None],
        expire: Callable[[int], object],
    ) -> None:
        self._clock = clock
        self._next_expiry_ns = next_expiry_ns
        self._expire = expire
        self._call = -1

    def moved(self) -> None:
        """Look at the next deadline again."""
        self._clock.forget(self._call)
        expiry_ns = self._next_expiry_ns()
        if expiry_ns is not None:
            self._call = self._clock.call_at(expiry_ns / _NS, self._ring)

    async def run(self) -> None:
        """Wait until cancelled."""
        await trio.sleep_forever()

    def _ring(self) -> None:
        self._expire(self._clock.now_ns())
        self.moved()


class CostModel(Protocol):
    """The cost of slices of handlers."""

    def slice_ns(self, task: Task) -> int:
        """Return the cost of the slice that ``task`` has just run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPerClass:
    """Each slice of a request costs what its class says."""

    by_class: Mapping[str, int]
    default_ns: int

    def slice_ns(self, task: Task) -> int:
        """Return the cost of the slice that ``task`` has just run."""
        return self.by_class.get(task.request_class, self.default_ns)


def spender(clock: VirtualClock, costs: CostModel) -> Callable[[Task], None]:
    """Return the dispatcher's callback that charges each slice's cost."""

    def spend(task: Task) -> None:
        clock.jump(costs.slice_ns(task))

    return spend


@contextlib.contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Make Trio's choices follow from ``seed``, for runs inside this context."""
    generator = _run._r
    state = generator.getstate()
    allowed = _run._ALLOW_DETERMINISTIC_SCHEDULING
    generator.seed(seed)
    _allow(True)
    try:
        yield
    finally:
        _allow(allowed)
        generator.setstate(state)


def run_virtual(function: Callable[[VirtualClock], Awaitable[T]], *, seed: int) -> T:
    """Run ``function`` under Trio in virtual time; the same seed, the same run."""
    clock = VirtualClock()
    with deterministic(seed):
        return trio.run(function, clock, clock=clock.trio_clock)


def _allow(value: bool) -> None:
    # Declared Final, though Trio's own pytest plug-in assigns to it as well.
    module: Any = _run
    module._ALLOW_DETERMINISTIC_SCHEDULING = value
