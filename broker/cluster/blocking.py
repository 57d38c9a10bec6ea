"""Blocking calls of a handler: on this thread, or in another (call_shell.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from broker.log.steps import BlockingCall, Steps
from planes.slices import preempt

_R = TypeVar("_R")

# Makes a blocking call that accesses no log; raises its exception.
Blocking: TypeAlias = Callable[[BlockingCall], Awaitable[None]]


async def carried_out(work: Steps[_R], blocking: Blocking) -> _R:
    """Run steps; ``blocking`` makes their blocking calls."""
    try:
        call = next(work)
        while True:
            try:
                if call is not None:
                    await blocking(call)
            except OSError as error:
                call = work.throw(error)
            else:
                call = next(work)
    except StopIteration as done:
        result: _R = done.value
        return result
    finally:
        work.close()


async def in_turns(work: Steps[_R]) -> _R:
    """Run steps without blocking calls in a handler, preemptible between steps."""
    while True:
        try:
            call = next(work)
        except StopIteration as done:
            result: _R = done.value
            return result
        assert call is None, f"{work} wants a device"
        await preempt()


async def call_here(call: BlockingCall) -> None:
    """Make a call on this thread, for storage in memory, which never blocks."""
    call()
