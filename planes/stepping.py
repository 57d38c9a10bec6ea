"""How a handler is stepped: up to its next trap, billed to whose turn it is.

Handlers are stepped here and nowhere else, in a turn of their own or in one that was
lent to them (``planes.lock``). What the trap asks for is the caller's to see to.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

from planes.clock import NowNs
from planes.cpu import Cpu
from planes.lock import LOCK_TRAPS
from planes.plane import PlaneCore
from planes.slices import PREEMPT, Park
from planes.task import Task

# Traps that are no part of Trio's, beside ``PREEMPT``.
OWN_TRAPS: Final = frozenset({Park, *LOCK_TRAPS})

# How a coroutine goes on: its ``send`` or its ``throw``.
Step = Callable[[Any], Any]
Spend = Callable[[Task], None]


class Stepper:
    """Steps the handlers of what takes turns at ``cpu``: several planes, or a lone one.

    ``spend`` is called after a slice; the virtual world moves its clock there.
    """

    __slots__ = ("_charge", "_now_ns", "_spend", "ended_ns")

    def __init__(
        self, cpu: Cpu | PlaneCore, now_ns: NowNs, spend: Spend | None
    ) -> None:
        self._charge = cpu.charge
        self._now_ns = now_ns
        self._spend = spend
        # When the last step ended.
        self.ended_ns = 0

    def step(
        self, owner: Task, runner: Task, step: Step, argument: object, began_ns: int
    ) -> Any:
        """Run ``runner`` in the turn of ``owner`` until its next trap; return that.

        Whatever ends the step is billed, from ``began_ns`` on: where the turn goes on,
        that is when the last step ended, so that a trap is its task's to pay for.
        ``spend`` is not called at a lock's traps: where time is virtual, the work
        before one is paid for with what comes after.

        :raises StopIteration: with the result, if the handler has returned.
        """
        trap = None
        try:
            trap = step(argument)
        finally:
            if self._spend is not None and type(trap) not in LOCK_TRAPS:
                self._spend(runner)
            self.ended_ns = ended_ns = self._now_ns()
            self._charge(owner, ended_ns - began_ns, ended_ns)
        return trap


@types.coroutine
def unserved(
    coroutine: Coroutine[Any, Any, Any], step: Step, argument: object
) -> Generator[Any, Any, None]:
    """Let a handler end where nobody is served any more, up to a trap of our own.

    Its scheduler let it go when it went to wait for a device, so nobody is billed.
    Whatever it raises is its worker's, as Trio's cancellation must be.
    """
    while True:
        try:
            trap = step(argument)
        except StopIteration:
            return
        if trap is PREEMPT or type(trap) in OWN_TRAPS:
            coroutine.close()
            return
        try:
            step, argument = coroutine.send, (yield trap)
        except BaseException as error:  # it is the handler's to deal with
            step, argument = coroutine.throw, error
