"""Steps of a handler: each up to its next trap, billed to the owner of the turn.

Handlers are stepped here and nowhere else, in a turn of their own or in one that was
lent to them (``planes.lock``). The caller carries out the trap.
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

# Traps other than ``PREEMPT`` that are not Trio's.
OWN_TRAPS: Final = frozenset({Park, *LOCK_TRAPS})

# The next step of a coroutine: its ``send`` or its ``throw``.
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
        """Run ``runner`` in the turn of ``owner`` until its next trap; return the trap.

        The step is billed from ``began_ns`` on, however it ends. Where the turn goes
        on, that is the end of the last step, so a task pays for its own traps.
        ``spend`` is not called at a lock's traps: in virtual time, work before such a
        trap is paid for with the work after it.

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
    """Run a handler to its end, or to a trap of ours, after the dispatcher has closed.

    Its scheduler released it when it went to wait for a device, so no flow is billed.
    An exception of the handler is its worker's, as Trio's cancellation must be.
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
