"""Fault injection in the tasks of brokers, once at each await point.

An *await point* is the task's name and the line of each of the broker's coroutines on a
waiting task's stack. The injector replaces a task's coroutine when Trio spawns the
task. At each new await point, the wait is aborted as by a cancellation, and the fault
is raised there. A run of a busy cluster thus covers every await point that its load
reaches.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NoReturn

import trio
from trio._core._traps import WaitTaskRescheduled
from trio.lowlevel import Abort, Task

MARK = "injected"
KINDS: tuple[Callable[[], Exception], ...] = (
    lambda: OSError(errno.EMFILE, MARK),
    lambda: ValueError(MARK),
    lambda: RuntimeError(MARK),
    lambda: MemoryError(MARK),
    lambda: KeyError(MARK),
)
# Within `Nursery.start`, Trio expects no exception but `trio.Cancelled`.
IN_TRIO = "Nursery.start"
# The same holds at a nursery's end, after all of its tasks have ended.
AT_END = "Nursery._nested_child_finished"
# Tasks of planes ("worker", "alarm") run requests, and are excluded.
VICTIMS = ("broker.", "throttle")
# Tasks that only wait for their children.
NOT_VICTIMS = ("broker.network.socket_server.SocketServer.run",)

Point = tuple[str, ...]


class FaultInjector(trio.abc.Instrument):
    """Faults in tasks below those named ``roots``, while `armed`.

    The pause between two faults is at most ``pause_s``.
    """

    def __init__(self, seed: int, *, roots: tuple[str, ...], pause_s: float) -> None:
        self.armed = False
        self.raised: dict[Point, Exception] = {}
        self._rng = random.Random(seed)
        self._roots = roots
        self._pause_s = pause_s
        self._not_before_s = 0.0

    def task_spawned(self, task: Task) -> None:
        """Replace a victim's coroutine."""
        is_victim = task.name.startswith(VICTIMS) and task.name not in NOT_VICTIMS
        if is_victim and self._is_below_root(task):
            task.coro = _Injected(task.coro, task.name, self)

    def _is_below_root(self, task: Task) -> bool:
        nursery = task.parent_nursery
        while nursery is not None:
            if nursery.parent_task.name in self._roots:
                return True
            nursery = nursery.parent_task.parent_nursery
        return False

    def fault(self, point: Point) -> Exception | None:
        """Return the fault to raise at a point, or None."""
        if (
            not self.armed
            or point in self.raised
            or trio.current_time() < self._not_before_s
        ):
            return None
        return self._rng.choice(KINDS)()

    def note(self, point: Point, fault: Exception) -> None:
        """Record a raised fault."""
        self.raised[point] = fault
        pause_s = self._rng.uniform(0, self._pause_s)
        self._not_before_s = trio.current_time() + pause_s


class _Injected:
    """A coroutine under Trio that may fail at its await points."""

    def __init__(self, coro: Any, name: str, injector: FaultInjector) -> None:
        self._coro = coro
        self._name = name
        self._injector = injector
        self.cr_frame = coro.cr_frame

    def send(self, value: Any) -> Any:
        """Run up to the next wait that does not fail."""
        return self._filtered(self._coro.send(value))

    def throw(self, *error: Any) -> Any:
        """Resume with an exception."""
        return self._filtered(self._coro.throw(*error))

    def close(self) -> None:
        """Close the coroutine."""
        self._coro.close()

    def _filtered(self, trap: Any) -> Any:
        point = (self._name, *_lines(self._coro))
        waits = isinstance(trap, WaitTaskRescheduled)
        is_trios = IN_TRIO in point or (AT_END in point and not waits)
        fault = None if is_trios else self._injector.fault(point)
        if fault is None:
            return trap
        if not waits:
            self._injector.note(point, fault)
            return self._coro.throw(fault)

        def raise_fault() -> NoReturn:
            # A nursery receives the fault at once, and cancels its tasks.
            self._injector.note(point, fault)
            raise fault

        if trap.abort_func(raise_fault) is Abort.FAILED:
            return trap
        self._injector.note(point, fault)
        return self._coro.throw(fault)


def _lines(coro: Any) -> Iterator[str]:
    """Iterate over the broker's lines on a waiting coroutine's stack."""
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is not None and frame.f_globals["__name__"].startswith("broker."):
            code: CodeType = frame.f_code
            yield f"{code.co_qualname}:{frame.f_lineno}"
        elif frame is not None and frame.f_code.co_qualname in (IN_TRIO, AT_END):
            yield frame.f_code.co_qualname
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
