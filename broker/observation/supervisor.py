"""Supervision of long-lived tasks: a fault restarts the task, not the process.

Fetchers, ISR changes, acceptors, processors, timers and similar tasks run under a
`Supervisor`. A fault is logged and counted under the task's name, and the task is
restarted after a pause, which doubles with each fault. Two exceptions pass through:
``trio.Cancelled``, and violations of a plane's invariants. A plane with a wrong queue
or seat count cannot serve any request, so such a fault ends the process.

A fault breaks a plane if code of `planes` was running when it was raised. This covers
the assertions of planes, and exceptions of a scheduling policy.
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

# Pause between a fault and the restart; reset after a run that outlasts the longest
# one.
PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 10.0


class Supervisor:
    """Supervisor of tasks; ``failures`` counts their faults by name."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()

    async def keep(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run ``work`` until it returns; restart it after a fault."""
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
        """Log and count a fault of the block, and continue after the block."""
        try:
            yield
        except* Exception as faults:
            self.note(name, faults)

    def note(self, name: str, fault: Exception) -> None:
        """Log and count a fault; re-raise it if it breaks a plane."""
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
        """Iterate over the numbers of faults of each task."""
        for name, count in sorted(self.failures.items()):
            yield Metric(
                name="doorkeeper_background_failures",
                kind="counter",
                value=count,
                labels={"duty": name},
                suffix="_total",
            )


def breaks_a_plane(fault: BaseException) -> bool:
    """Return whether code of a plane was running when ``fault`` was raised."""
    if isinstance(fault, BaseExceptionGroup) and any(
        map(breaks_a_plane, fault.exceptions)
    ):
        return True
    frames = (frame for frame, _ in walk_tb(fault.__traceback__))
    modules = (str(frame.f_globals.get("__name__")) for frame in frames)
    return any(module.partition(".")[0] == "planes" for module in modules)
