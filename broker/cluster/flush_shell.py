"""Flushes a log in a worker thread, so that one fsync does not stop the whole broker.

The log says what there is to sync and learns the outcome on the broker's own thread;
only the system calls are elsewhere. To the plane, the handler waits for a device.
"""

from __future__ import annotations

import trio

from broker.log.log import Log


async def flush_in_thread(log: Log) -> None:
    """Make durable what the log holds now; raise KAFKA_STORAGE_ERROR if that fails."""
    job = log.flush_job()
    if job is None:
        return
    try:
        await trio.to_thread.run_sync(job.run)
    except OSError as error:
        raise log.durability.failed(error) from error
    log.durability.done(job)
