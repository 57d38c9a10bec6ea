"""Long work on a log, run by a handler with a preemption point after each step."""

from __future__ import annotations

from typing import TypeVar

from broker.log.steps import Steps
from planes.slices import preempt

_R = TypeVar("_R")


async def preemptibly(work: Steps[_R]) -> _R:
    """Drive an operation to its end; the request can be preempted between its steps."""
    while True:
        try:
            call = next(work)
        except StopIteration as done:
            result: _R = done.value
            return result
        assert call is None, f"{work} wants a device, which a handler does not wait for"
        await preempt()
