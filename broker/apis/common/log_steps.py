"""Long work on a log, run by a handler with a preemption point after each step."""

from __future__ import annotations

from typing import TypeVar

from broker.log.steps import Steps
from broker.protocol.records.codecs import large_window
from planes.lock import TaskLock
from planes.slices import preempt

_R = TypeVar("_R")


async def preemptibly(
    work: Steps[_R], large_windows: TaskLock | None = None, *, is_held: bool = False
) -> _R:
    """Run an operation to its end; the request can be preempted between its steps.

    An operation that decompresses records needs the lock ``large_windows``: only one
    operation with a window of many megabytes at a time can be preempted.
    """
    while True:
        try:
            call = next(work)
        except StopIteration as done:
            result: _R = done.value
            return result
        if call is large_window and large_windows is not None and not is_held:
            async with large_windows:
                return await preemptibly(work, large_windows, is_held=True)
        is_marked = call is large_window and is_held
        assert call is None or is_marked, (
            f"{work} wants a device, which a handler does not wait for"
        )
        await preempt()
