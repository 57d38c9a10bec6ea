"""Preemption points: a handler gives the CPU back between its units of work.

A handler is an ``async def``. Between units of work (a partition, a batch, a page) it
awaits ``preempt()``. To wait for something that others will complete (purgatory), it
awaits ``parked(register)``; to wait for another handler, ``asleep(register)``. All are
coroutine traps that this package understands; every other trap is Trio's and is passed
to Trio. This works at any call depth and costs no Trio checkpoint when the same task
goes on. Any seat may resume a suspended handler, since none belongs to a Trio task.

That freedom has one rule: a handler holds no cancel scope, nursery or Trio lock across
any of them. ``CancelStatusGuard`` turns a breach, which would otherwise cancel some
innocent request later, into an assertion at once (explained in PEP 789).
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

# Items between two preemption points, of a loop that does little for each of them.
STEP_ITEMS: Final = 64

Register = Callable[[Wake], bool]


class _Preempt:
    """The trap of ``preempt``; one object serves all."""


PREEMPT: Final = _Preempt()


class Park:
    """The trap of ``parked`` and ``asleep``; ``register`` takes the wake function."""

    __slots__ = ("is_done", "register")

    def __init__(self, register: Register, *, is_done: bool) -> None:
        self.register = register
        self.is_done = is_done


@types.coroutine
def preempt() -> Generator[_Preempt, None, None]:
    """Offer to be preempted here; go on at once if nothing outranks the caller."""
    yield PREEMPT


class Pace:
    """Preemption points in loops, and in loops within them, after every 64 items.

    Bytes are bounded by it too: no string of Kafka's protocol has more than 32,767.

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
        """Iterate over ``items``; after each, the pace may offer to be preempted."""
        return _Paced(iter(items), self)


class _Paced(Generic[T]):
    """One loop of a `Pace`."""

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
    """Leave the seat until woken; go on as a waiting task of the same class.

    ``register(wake)`` is called once the seat is free. It returns False if there is
    nothing left to wait for, and then never calls ``wake``; else ``wake`` must be
    called exactly once, from the plane's own thread.
    """
    yield Park(register, is_done=True)


@types.coroutine
def asleep(register: Register) -> Generator[Park, None, None]:
    """Do the same amid local work, while another handler finishes its part.

    The task has no seat: the other handler may need one, and all could be held by
    waiting tasks.
    """
    yield Park(register, is_done=False)


async def rescheduled(forget: Callable[[], object] | None = None) -> None:
    """Wait, as a task of Trio's, until another one reschedules this one.

    A cancellation calls ``forget`` first; it has to wait too if that is None.
    """

    def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        if forget is None:
            return trio.lowlevel.Abort.FAILED
        forget()
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


class CancelStatusGuard:
    """Sees whether a slice left the Trio task's cancel scopes as it found them."""

    __slots__ = ("_status", "_task")

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()
        self._status = self._task._cancel_status

    def breach(self, task: Task) -> BrokenRule | None:
        """Return the error to throw into a handler that suspends inside a scope.

        Thrown there, it unwinds the scope where it belongs and names the line.
        """
        if self._task._cancel_status is self._status:
            return None
        return BrokenRule(f"{task!r} suspends inside a cancel scope or nursery")


def stay(task: Task) -> None:
    """Note that a handler back from a device goes on in this Trio task."""
    task.go_on = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())


def reseat(task: Task) -> None:
    """Resume a handler in the Trio task where it waited after its device."""
    go_on, task.go_on = task.go_on, None
    assert go_on is not None, task
    go_on()
