"""Preemption points: a handler offers the CPU between its units of work.

A handler is an ``async def``. Between units of work (a partition, a batch, a page) it
awaits ``preempt()``. To wait for something that other tasks complete (purgatory), it
awaits ``parked(register)``; to wait for another handler, ``asleep(register)``. All are
coroutine traps that this package executes; every other trap is passed to Trio. A trap
works at any call depth and costs no Trio checkpoint if the same task continues. A
suspended handler belongs to no Trio task, so any worker may resume it.

Therefore a handler must hold no cancel scope, nursery or Trio lock across these traps.
Otherwise a cancellation could hit another request later (PEP 789).
``CancelStatusGuard`` detects a violation at the trap and raises an error there.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Final, Generic, TypeVar

import trio

from planes.task import BrokenRule, Task

Wake = Callable[[], None]
T = TypeVar("T")

# Items between two preemption points, in a loop with little work per item.
STEP_ITEMS: Final = 64

Register = Callable[[Wake], bool]


class _Preempt:
    """The trap of ``preempt``; all calls share one object."""


PREEMPT: Final = _Preempt()


class Park:
    """The trap of ``parked`` and ``asleep``; ``register`` takes the wake function."""

    __slots__ = ("is_done", "register")

    def __init__(self, register: Register, *, is_done: bool) -> None:
        self.register = register
        self.is_done = is_done


@types.coroutine
def preempt() -> Generator[_Preempt, None, None]:
    """Preemption point: go on at once unless another task outranks the caller."""
    yield PREEMPT


class Pace:
    """Preemption points after every 64 items of a loop and of the loops within it.

    This also bounds the bytes per slice: a string of Kafka's protocol has at most
    32,767 bytes.

    >>> async def total(rows):
    ...     pace, found = Pace(), 0
    ...     async for row in pace.over(rows):
    ...         async for number in pace.over(row):
    ...             found += number
    ...     return found
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        # Items until the next preemption point.
        self.left = STEP_ITEMS

    def over(self, items: Iterable[T]) -> _Paced[T]:
        """Iterate over ``items`` with preemption points of this pace."""
        return _Paced(iter(items), self)


class _Paced(Generic[T]):
    """A loop of a `Pace`."""

    __slots__ = ("_items", "_pace")

    def __init__(self, items: Iterator[T], pace: Pace) -> None:
        self._items = items
        self._pace = pace

    def __aiter__(self) -> _Paced[T]:
        return self

    async def __anext__(self) -> T:
        pace = self._pace
        if not pace.left:
            pace.left = STEP_ITEMS
            await preempt()
        pace.left -= 1
        for item in self._items:
            return item
        raise StopAsyncIteration


def in_steps(items: Iterable[T]) -> _Paced[T]:
    """Iterate over ``items`` with a preemption point after every 64 of them."""
    return Pace().over(items)


@types.coroutine
def parked(register: Register) -> Generator[Park, None, None]:
    """Leave the seat until woken; then wait for a turn in the same class.

    ``register(wake)`` is called once the seat is free. It returns False, without
    calling ``wake``, if there is nothing left to wait for. Otherwise ``wake`` must be
    called exactly once, from the plane's own thread.
    """
    yield Park(register, is_done=True)


@types.coroutine
def asleep(register: Register) -> Generator[Park, None, None]:
    """Leave the seat as ``parked`` does, but within local work, for another handler.

    The task gives up its seat because the other handler may need one. Otherwise waiting
    tasks could hold all seats.
    """
    yield Park(register, is_done=False)


async def rescheduled(forget: Callable[[], object] | None = None) -> None:
    """Block this Trio task until another task reschedules it.

    A cancellation calls ``forget``. If ``forget`` is None, the wait is not cancellable.
    """

    def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        if forget is None:
            return trio.lowlevel.Abort.FAILED
        forget()
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


class CancelStatusGuard:
    """Detector of slices that change the cancel scopes of their Trio task."""

    __slots__ = ("_status", "_task")

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()
        self._status = self._task._cancel_status

    def breach(self, task: Task) -> BrokenRule | None:
        """Return the error to throw into a handler that suspends inside a scope.

        Thrown into the handler, it unwinds the scope, and its traceback names the line.
        """
        if self._task._cancel_status is self._status:
            return None
        return BrokenRule(f"{task!r} suspends inside a cancel scope or nursery")


def stay(task: Task) -> None:
    """Bind a handler that is back from a device to this Trio task."""
    task.go_on = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())


def reseat(task: Task) -> None:
    """Resume a handler in the Trio task to which ``stay`` bound it."""
    go_on, task.go_on = task.go_on, None
    assert go_on is not None, task
    go_on()
