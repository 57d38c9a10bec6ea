"""Flushing logs for who waits, so that a disk's fsync stops nobody else.

While one flush of a log is under way, all who need a later one wait for the next, and
share it: group commit. The handler keeps its seat and gives the CPU away meanwhile, as
a Kafka handler thread does in ``FileChannel.force``.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from broker.log.flushing import due_syncs, flushed
from broker.log.log import Log
from broker.node.blocking import Blocking


class SharedFlush:
    """Makes logs durable up to their end at the time of the call."""

    def __init__(self, now_ms: Callable[[], int], blocking: Blocking) -> None:
        self._now_ms = now_ms
        self._blocking = blocking
        self._running: dict[Log, trio.Event] = {}

    async def __call__(self, log: Log) -> None:
        """Return once all that ``log`` holds now is durable; raise `KafkaError`."""
        wanted_offset = log.log_end_offset
        # A truncation in between may leave less to flush.
        while log.recovery_point < min(wanted_offset, log.log_end_offset):
            running = self._running.get(log)
            if running is None:
                await self._run(log)
            else:
                await running.wait()

    async def _run(self, log: Log) -> None:
        syncs = due_syncs(log)
        if syncs is None:
            return
        ended = self._running[log] = trio.Event()
        try:
            await self._blocking(syncs.run)
        except OSError as error:
            raise log.durability.sync_failed(error) from error
        else:
            flushed(log, syncs, self._now_ms())
        finally:
            del self._running[log]
            ended.set()
