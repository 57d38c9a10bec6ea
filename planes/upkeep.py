"""Upkeep: background work in small steps, done when idle or overdue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from planes.cpu_ledger import CpuLedger
from planes.task import Task

HOUSEKEEPING: Final = "housekeeping"
_NEVER_NS: Final = 1 << 62

# Called after the slice of a task; the virtual world moves its clock there.
Spend: TypeAlias = Callable[[Task], None]


class Upkeep:
    """Background work in small steps: the class `HOUSEKEEPING`, below all others.

    A dispatcher does a step when no plane has a task ready. When planes are always
    busy, it does at least one step per ``patience_ns``, under any policy. A request
    therefore waits for at most one step, and for one more per ``patience_ns`` of its
    own time. Upkeep is never starved.

    ``due_ns`` returns the time of the next step (None: after the next event), ``step``
    does it. ``settled`` is called when no further step is due.
    """

    def __init__(
        self,
        due_ns: Callable[[], int | None],
        step: Callable[[int], None],
        *,
        patience_ns: int,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        self._due_ns = due_ns
        self._step = step
        self._patience_ns = patience_ns
        self._settled = settled
        # Time at which a waiting step becomes overdue.
        self.overdue_ns = _NEVER_NS
        # Task of the upkeep slices, for the virtual world.
        self.task = Task(number=-1, request_class=HOUSEKEEPING)

    @property
    def waits(self) -> bool:
        """Return whether a step waits."""
        return self.overdue_ns != _NEVER_NS

    def next_ns(self) -> int | None:
        """Return when the next step is due; None while a step waits."""
        return None if self.waits else self._due_ns()

    def begin(self, now_ns: int) -> None:
        """Queue a step that is due."""
        if not self.waits:
            self.overdue_ns = now_ns + self._patience_ns

    def step(self, ledger: CpuLedger, spend: Spend | None) -> int:
        """Do and bill a step; return the time.

        If the next step is due already, it waits from now on.
        """
        with ledger.of("upkeep"):
            self._step(ledger.now_ns())
            if spend is not None:
                spend(self.task)
        now_ns = ledger.until_ns
        due_ns = self._due_ns()
        if due_ns is not None and due_ns <= now_ns:
            self.overdue_ns = now_ns + self._patience_ns
        else:
            self.overdue_ns = _NEVER_NS
            self._settled()
        return now_ns


def no_upkeep() -> Upkeep:
    """Return an upkeep without work."""
    return Upkeep(lambda: None, lambda now_ns: None, patience_ns=0)
