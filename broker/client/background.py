"""Background tasks for the time of a block, whose own errors come out ungrouped.

A nursery wraps whatever leaves it in an `ExceptionGroup`. That is right for what the
background tasks raise (our faults: assertions), and a nuisance for what the user's own
block raises, which had one cause and would have to be dug out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background(
    *tasks: Callable[[], Awaitable[None]],
) -> AsyncIterator[trio.Nursery]:
    """Run tasks until the block ends; an exception of the block leaves it unwrapped."""
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
