"""Determinism of Trio, and a clock of whole nanoseconds: one seed, one run.

Trio shuffles every batch of runnable tasks with a private generator, and sorts it first
only if a private flag is set (Hypothesis sets it). ``MockClock`` alone changes neither,
and six runs gave six traces. `deterministic` sets both and restores them. The names are
private, so Trio's version is bounded; a test fails if they change.

Time is an integer count of nanoseconds everywhere except in Trio, whose clock is a
float of seconds. Every reading is rounded to the nanosecond, and every jump is computed
from integers, so no error accumulates (a double holds nanoseconds exactly up to 100
days).

Virtual time has no threads: the clock would jump past them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, TypeVar

import trio
from trio._core import _run
from trio.testing import MockClock

from planes import Task

T = TypeVar("T")
_NS = 1_000_000_000


class VirtualClock:
    """A clock that jumps to the next deadline when every task is blocked."""

    def __init__(self) -> None:
        self.trio_clock = MockClock(autojump_threshold=0)
        # Called at every step of every task. MockClock would read the real clock first,
        # and compute statistics of all tasks to find the next deadline.
        self._mock: Any = self.trio_clock
        vars(self.trio_clock).update(
            current_time=self._now_s, _autojump=self._jump_to_next_deadline
        )
        self._read_s, self._read_ns = 0.0, 0

    def now_ns(self) -> int:
        """Return the time since the start of the run."""
        now_s = self._mock._virtual_base
        if now_s != self._read_s:
            self._read_s, self._read_ns = now_s, round(now_s * _NS)
        return self._read_ns

    def now_ms(self) -> int:
        """Return the time in whole milliseconds, as in the log's records."""
        return self.now_ns() // 1_000_000

    def jump(self, duration_ns: int) -> None:
        """Advance time for all tasks at once, as computing does under the GIL."""
        assert duration_ns >= 0, duration_ns
        if duration_ns:
            target_s = (self.now_ns() + duration_ns) / _NS
            self.trio_clock.jump(target_s - self._now_s())

    def _now_s(self) -> float:
        now_s: float = self._mock._virtual_base
        return now_s

    def _jump_to_next_deadline(self) -> None:
        deadlines = _run.GLOBAL_RUN_CONTEXT.runner.deadlines
        sleep_s = deadlines.next_deadline() - self._now_s()
        if 0 < sleep_s < inf:
            self._mock.jump(sleep_s)


class CostModel(Protocol):
    """The cost of slices of handlers."""

    def slice_ns(self, task: Task) -> int:
        """Return the cost of the slice that ``task`` has just run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPerClass:
    """A fixed cost per slice for each class of requests."""

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
    """Make Trio's choices depend on ``seed`` alone, for runs inside this context."""
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
    """Run ``function`` under Trio in virtual time; equal seeds give equal runs."""
    clock = VirtualClock()
    with deterministic(seed):
        return trio.run(function, clock, clock=clock.trio_clock)


def _allow(value: bool) -> None:
    # Declared Final, though Trio's own pytest plug-in assigns to it as well.
    module: Any = _run
    module._ALLOW_DETERMINISTIC_SCHEDULING = value
