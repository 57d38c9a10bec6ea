"""Background tasks during a block, whose own exceptions are not wrapped.

A nursery wraps every exception in an `ExceptionGroup`. This is right for exceptions of
background tasks (bugs of the client), and inconvenient for an exception of the user's
block, which has a single cause.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background(
    *tasks: Callable[[], Awaitable[None]],
) -> AsyncIterator[trio.Nursery]:
    """Run tasks until the block ends; an exception of the block is not wrapped."""
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
        try:
            yield nursery
        except Exception as error:
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised
