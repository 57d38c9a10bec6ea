"""Functions that make the event loop's thread wait for a device.

A disk in memory never waits, so which calls would is told by their kind: what syncs,
cuts a file or removes one may take as long as the device likes. Such a call belongs
into a job for another thread. Those that are made here all the same are noted by the
function of the broker that makes them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

from broker.disk.memory import Faults
from broker.log.steps import BlockingCall
from broker.log.upkeep.periodic_task import CallsHere, Done

_MAY_WAIT = ("sync ", "remove ", "rmdir ", "replace ")
# Other files that are cut are as small as what is written then.
_CUT_SHORT = re.compile(r"truncate .*\.log$")
# Between the disk and who asked for it.
_BETWEEN = ("broker.disk.", "broker.log.operation", "broker.log.steps")


class Elsewhere(CallsHere):
    """Makes jobs at once, as if in threads of their own."""

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
        """Make a call that a handler waits for."""
        self._as_a_thread(call)()


class NotedCalls(Faults):
    """Fails nothing, and notes who makes a call that may wait, and not ``elsewhere``.

    Only while ``serving`` says so: a start and a stop keep nobody waiting.
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
    """Return the module and function of the broker's that asked the disk."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        module = frame.f_globals["__name__"]
        if module.startswith("broker.") and not module.startswith(_BETWEEN):
            return f"{module}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    raise AssertionError("the disk was asked by nobody of the broker's")
