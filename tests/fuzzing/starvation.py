"""How much the broker does between two moments at which others may run.

Work is counted in calls of the broker's functions, and of those that they call in C,
which is the same on every machine. What the disk and the network in memory do does not
count. What is not seen: one call that does much by itself, as copying bytes does.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import trio

from broker.protocol.api_keys import ApiKey
from broker.requests.request import Request
from planes import Task

_OURS = ("broker.", "planes.", "schedulers.")


def _is_ours(module: str) -> bool:
    return module.startswith(_OURS) and module != "broker.disk.memory"


class StarvationProbe(trio.abc.Instrument):
    """Counts calls within each slice of a request and each step of a Trio task.

    ``most_calls`` is the most that was seen of each: of an API's slices by its name, of
    the broker's own tasks by theirs. A slice ends at a preemption point.
    """

    def __init__(self) -> None:
        self.most_calls: Counter[str] = Counter()
        self._calls = 0

    def end(self, what: str) -> None:
        """Note that a stretch of work is over, and begin another one."""
        self.most_calls[what] = max(self.most_calls[what], self._calls)
        self._calls = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._calls = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        module = task.coro.cr_frame and task.coro.cr_frame.f_globals["__name__"]
        if module and _is_ours(module):
            self.end(task.name)

    def watching(self, spend: Callable[[Task], None]) -> Callable[[Task], None]:
        """Return a ``spend`` that also ends a slice of its task."""

        def ends(task: Task) -> None:
            assert isinstance(task, Request)
            self.end(ApiKey(task.api_key).name)
            spend(task)
            self._calls = 0

        return ends

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count calls in this thread meanwhile."""

        counted: dict[CodeType, bool] = {}

        def count(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call" or event == "c_call":
                code = frame.f_code
                if code not in counted:
                    counted[code] = _is_ours(frame.f_globals.get("__name__", ""))
                self._calls += counted[code]

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            yield
        finally:
            sys.setprofile(before)
