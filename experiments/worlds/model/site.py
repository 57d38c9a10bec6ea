"""Sites of the model world: one plane's servers, or servers that planes share.

A *site* is one plane whose seats are independent servers (M/G/c), one CPU at which all
planes take turns (``planes.Cpu``), or one pool of seats that planes lend each other.
This module has its state and its constants; the engine (``engine``) handles its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from experiments.worlds.model.task import ModelTask
from planes import Cpu, PlaneCore
from planes.lending import Lending
from schedulers import IN_SERVICE, NEVER, foresight_of

NEVER_NS: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """The preemption points of tasks, and a server's overheads."""

    granularity_ns: int = 0
    preemption_ns: int = 0
    switch_ns: int = 0


class Run(Protocol):
    """The part of a run that a site uses."""

    quantum_ns: int


class Site:
    """One plane's servers; or a shared CPU or pool of seats of several planes."""

    def __init__(
        self,
        planes: Iterable[PlaneCore],
        overheads: Overheads,
        *,
        shared: Cpu | Lending | None = None,
    ) -> None:
        self.planes = tuple(planes)
        first, lone = self.planes[0], len(self.planes) == 1
        assert shared is not None or lone
        if isinstance(shared, Lending):
            self.free = shared.seats
        else:
            self.free = 1 if shared else first.seats
        # With a single plane the shared CPU is equivalent to the plane's scheduler.
        driver = first if shared is None or lone else shared
        self.pick, self.charge, self.finish = driver.pick, driver.charge, driver.finish
        self.must_yield = first.scheduler.outranks if lone else driver.must_yield
        self.wake = driver.wake if isinstance(driver, Cpu) else None
        # The service of the lone server's task below which it cannot be outranked; and
        # whether no arrival changes the next check, because the turn ends before it or
        # the check is exactly then.
        self.firm_ns = 0
        self.settled = False
        self.running: list[ModelTask] = []
        self.overheads = overheads
        self.costs = overheads.preemption_ns + overheads.switch_ns > 0
        preempts = {plane.scheduler.preempts for plane in self.planes}
        self.watches = not lone or IN_SERVICE in preempts
        # Foresight needs a single server and plane; others may change the answer too.
        policy = foresight_of(first.scheduler)
        hinted = self.watches and lone and self.free == 1
        self.outranked_at_ns: Callable[[ModelTask], int | None] | None = (
            policy.outranked_at_ns if hinted and policy.foresees else None
        )
        self.least_turn_ns = policy.least_turn_ns if hinted else 0
        self.may_idle = not all(
            plane.scheduler.work_conserving for plane in self.planes
        )
        self.checks_preemption = self.watches or preempts != {NEVER}
        self.last: ModelTask | None = None
        self.preempted = False
        self.lost_ns = 0
        self.alarm_ns = NEVER_NS
        self.anywhere = overheads.granularity_ns == 0
        self.at_once = self.anywhere and not self.watches
        self.check_every_ns = overheads.granularity_ns
        # Number of waiting tasks; with one plane, the length of its queue.
        lengths = [plane.scheduler.__len__ for plane in self.planes]
        self.waiting: Callable[[], int] = (
            lengths[0] if len(lengths) == 1 else lambda: sum(it() for it in lengths)
        )

    def begin(self, run: Run) -> None:
        """Join a run."""
        self.check_every_ns = self.overheads.granularity_ns or run.quantum_ns
