"""How an append is made durable before it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.log.flushing import flush
from broker.log.log import Log

# Makes a log durable; raises KAFKA_STORAGE_ERROR.
Flush = Callable[[Log], Awaitable[None]]


async def flush_here(log: Log) -> None:
    """Flush on this thread: for storage in memory, where it costs nothing."""
    flush(log)
