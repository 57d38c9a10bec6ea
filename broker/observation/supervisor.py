"""Long-lived tasks next to requests: a fault costs a pause, not the process.

Fetchers, ISR changes, acceptors, processors, timers and the like run under a
`Supervisor`. A task that raises is logged and counted under its name, and runs again
after a pause, which doubles from one fault to the next. Two exceptions pass through:
``trio.Cancelled``, and the breach of a plane's invariant. A plane whose seats or queue
are wrong cannot be trusted with any request, so that fault ends the process.

A fault breaks a plane if code of `planes` was running when it was raised. That covers
the assertions of planes, and a scheduling policy that raises in one of its verbs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from logging import getLogger
from traceback import walk_tb
from typing import Final

import trio

from broker.observation.logs import fields
from broker.observation.metric import Metric

logger = getLogger(__name__)

# Between a fault and the next run; a run that lasts for the longest pause was healthy.
PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 10.0


class Supervisor:
    """Keeps tasks running; ``failures`` counts their faults by name."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()

    async def keep(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run ``work`` until it returns; after a fault run it again."""
        pause_s = 0.0
        while True:
            began_s = trio.current_time() + pause_s
            with self.contained(name):
                if pause_s:
                    await trio.sleep(pause_s)
                await work()
                return
            healthy = trio.current_time() - began_s >= PAUSE_MAX_S
            pause_s = min(max(0 if healthy else 2 * pause_s, PAUSE_S), PAUSE_MAX_S)

    @contextmanager
    def contained(self, name: str) -> Iterator[None]:
        """Log and count a fault of the block, and go on behind the block."""
        try:
            yield
        except* Exception as faults:
            self.note(name, faults)

    def note(self, name: str, fault: Exception) -> None:
        """Log and count a fault; raise it again if it breaks a plane."""
        if breaks_a_plane(fault):
            raise fault
        while isinstance(fault, ExceptionGroup) and len(fault.exceptions) == 1:
            (fault,) = fault.exceptions
        self.failures[name] += 1
        logger.error(
            "a background task has failed and is tried again",
            exc_info=fault,
            extra=fields(task=name, fault=repr(fault)),
        )

    def metrics(self) -> Iterator[Metric]:
        """Iterate over how often each task has failed."""
        for name, count in sorted(self.failures.items()):
            yield Metric(
                name="doorkeeper_background_failures",
                kind="counter",
                value=count,
                labels={"duty": name},
                suffix="_total",
            )


def breaks_a_plane(fault: BaseException) -> bool:
    """Return whether a plane was at work where ``fault`` was raised."""
    if isinstance(fault, BaseExceptionGroup) and any(
        map(breaks_a_plane, fault.exceptions)
    ):
        return True
    frames = (frame for frame, _ in walk_tb(fault.__traceback__))
    modules = (str(frame.f_globals.get("__name__")) for frame in frames)
    return any(module.partition(".")[0] == "planes" for module in modules)
