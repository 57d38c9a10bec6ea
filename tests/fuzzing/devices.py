"""Detection of device calls that would block the event loop's thread.

A disk in memory never blocks, so calls are judged by their kind: a call that syncs,
truncates or removes a file may block for any length of time. Such a call belongs in a
job for another thread. `NotedCalls` records each one made on the event loop, with the
broker function that made it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

from broker.disk.memory import Faults
from broker.log.steps import BlockingCall
from broker.log.upkeep.periodic_task import CallsHere, Done

_MAY_WAIT = ("sync ", "remove ", "rmdir ", "replace ")
# Truncated files of other kinds are small.
_CUT_SHORT = re.compile(r"truncate .*\.log$")
# Modules between the disk and the calling broker function.
_BETWEEN = ("broker.disk.", "broker.log.operation", "broker.log.steps")


class Elsewhere(CallsHere):
    """Runs jobs immediately, but marks them as running in another thread."""

    def __init__(self) -> None:
        self.at_work = False

    def _as_a_thread(self, call: BlockingCall) -> BlockingCall:
        def made() -> None:
            self.at_work = True
            try:
                call()
            finally:
                self.at_work = False

        return made

    def start(self, call: BlockingCall, done: Done) -> None:
        super().start(self._as_a_thread(call), done)

    def run_all(
        self, calls: Sequence[BlockingCall], threads: int | None = None
    ) -> None:
        super().run_all([self._as_a_thread(call) for call in calls], threads)

    async def blocking(self, call: BlockingCall) -> None:
        """Run a call that a handler waits for."""
        self._as_a_thread(call)()


class NotedCalls(Faults):
    """Injects no fault, and records the callers of blocking calls on the event loop.

    Calls are recorded only while ``serving`` returns True: at start and stop, no client
    waits.
    """

    def __init__(self, elsewhere: Elsewhere, serving: Callable[[], bool]) -> None:
        super().__init__()
        self.made_by: dict[str, str] = {}
        self._elsewhere = elsewhere
        self._serving = serving

    def count(self, call: str) -> None:
        super().count(call)
        waits = call.startswith(_MAY_WAIT) or _CUT_SHORT.match(call)
        if waits and not self._elsewhere.at_work and self._serving():
            self.made_by.setdefault(_asker(), call)


def _asker() -> str:
    """Return the module and name of the broker function that called the disk."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        module = frame.f_globals["__name__"]
        if module.startswith("broker.") and not module.startswith(_BETWEEN):
            return f"{module}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    raise AssertionError("the disk was asked by nobody of the broker's")
