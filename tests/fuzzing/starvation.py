"""Amount of the broker's work between two points at which other tasks can run.

The counts are the same on every machine. Calls are those of the broker's functions,
including their calls of C functions. Items are executed lines, and bytes are the peak
allocation of a stretch; both are optional. Calls that change or sync files on disk are
counted separately. Disk and network in memory count as no work. The measured CPU time
of the thread depends on the machine. Loops within C are not counted.
"""

from __future__ import annotations

import contextlib
import sys
import time
import tracemalloc
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

    ``most_calls`` is the maximum per API for slices of requests, and per task name for
    the broker's own tasks. The other counters have the same keys. A slice ends at a
    preemption point. ``device_calls`` returns the number of device calls so far.
    """

    def __init__(self, device_calls: Callable[[], int] = lambda: 0) -> None:
        self.most_calls: Counter[str] = Counter()
        self.most_items: Counter[str] = Counter()
        self.most_bytes: Counter[str] = Counter()
        self.most_device_calls: Counter[str] = Counter()
        self.most_cpu_ns: Counter[str] = Counter()
        self.device_calls = device_calls
        self._calls = self._items = 0
        self._bytes_before = self._device_calls_before = self._began_cpu_ns = 0

    def begin(self) -> None:
        """Begin a stretch of work."""
        self._calls = self._items = 0
        self._device_calls_before = self.device_calls()
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
            self._bytes_before, _ = tracemalloc.get_traced_memory()
        self._began_cpu_ns = time.thread_time_ns()

    def end(self, what: str) -> None:
        """Record the counts of the stretch that ends, and begin another one."""
        cpu_ns = time.thread_time_ns() - self._began_cpu_ns
        _, peak = tracemalloc.get_traced_memory()
        for most, count in (
            (self.most_calls, self._calls),
            (self.most_items, self._items),
            (self.most_bytes, peak - self._bytes_before),
            (self.most_device_calls, self.device_calls() - self._device_calls_before),
            (self.most_cpu_ns, cpu_ns),
        ):
            most[what] = max(most[what], count)
        self.begin()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.begin()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        module = task.coro.cr_frame and task.coro.cr_frame.f_globals["__name__"]
        if module and _is_ours(module):
            self.end(task.name)

    def watching(self, spend: Callable[[Task], None]) -> Callable[[Task], None]:
        """Return a ``spend`` that also ends a slice of its task."""

        def ends(task: Task) -> None:
            asked = task.subject
            is_request = isinstance(asked, Request)
            self.end(ApiKey(asked.api_key).name if is_request else task.request_class)
            spend(task)
            self.begin()

        return ends

    def uncounted(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return an uncounted call, for work that has its own thread in production."""

        def made() -> None:
            counts = self._calls, self._items
            try:
                call()
            finally:
                self._calls, self._items = counts

        return made

    @contextlib.contextmanager
    def counting(self, *, items: bool = False, octets: bool = False) -> Iterator[None]:
        """Count calls in this thread; items and bytes make it slow."""
        counted: dict[CodeType, bool] = {}

        def is_counted(frame: FrameType) -> bool:
            code = frame.f_code
            if code not in counted:
                counted[code] = _is_ours(frame.f_globals.get("__name__", ""))
            return counted[code]

        def count(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call" or event == "c_call":
                self._calls += is_counted(frame)

        def enter(frame: FrameType, event: str, argument: Any) -> Any:
            return step if is_counted(frame) else None

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            self._items += event == "line"
            return step

        profile, trace = sys.getprofile(), sys.gettrace()
        if octets:
            tracemalloc.start(1)
        self.begin()
        sys.setprofile(count)
        if items:
            sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(trace)
            sys.setprofile(profile)
            if octets:
                tracemalloc.stop()
