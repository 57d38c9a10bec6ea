"""Periodic work on all logs of a broker: the tasks of Kafka's ``LogManager``.

Each task is a generator of steps over the logs. To wait for a device, it yields a call
for another thread. If a log fails, ``failed`` is called, the other logs are processed,
and the next round tries the log again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.disk.disk_failures import LogUnavailable
from broker.log import flushing, trimming
from broker.log.log import Log
from broker.log.steps import Steps
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.mending import mend
from broker.log.upkeep.offsets import HighWatermark
from broker.protocol.topic_partition import TopicPartition

# Receives a path and its error; the round continues.
Failed = Callable[[str, Exception], None]

# Logs checked in one step if they need no work.
_LOGS_PER_STEP: Final = 32
_TRY_AGAIN_MS: Final = 60_000


def retention(
    manager: LogManager, up_to: Callable[[TopicPartition], int], failed: Failed
) -> Steps[None]:
    """Apply retention to every log, and remove expired producers.

    ``up_to`` returns the high watermark, below which records may be removed.
    """

    def trim(key: TopicPartition, log: Log) -> Steps[None]:
        now_ms = manager.now_ms()
        yield from log.producers.expire(now_ms - log.config.producer_id_expiration_ms)
        if trimming.retention(log, now_ms, up_to(key)):
            yield from removal(manager, failed)

    return _each(manager, failed, trim)


def removal(manager: LogManager, failed: Failed) -> Steps[None]:
    """Remove due paths; retry paths that cannot be removed later."""
    while (path := manager.doomed.take(manager.now_ms())) is not None:
        try:
            yield from manager.remove(path)
        except OSError as error:
            failed(path, error)
            manager.doomed.add(path, manager.now_ms(), _TRY_AGAIN_MS)


def flush(manager: LogManager, failed: Failed) -> Steps[None]:
    """Flush the logs for which ``flush.ms`` or ``flush.messages`` requires it."""
    now_ms = manager.now_ms()

    def flush_one(_: TopicPartition, log: Log) -> Steps[None]:
        if flushing.flush_due(log, now_ms):
            yield from flushing.flush_in_steps(log, flushing.due_syncs(log))
            log.flushed_ms = now_ms

    return _each(manager, failed, flush_one)


def checkpoint(
    manager: LogManager,
    high_watermark: HighWatermark,
    mended: Callable[[Log], None],
    failed: Failed,
) -> Steps[None]:
    """Mend logs, flush ended segments, then write all checkpoints.

    Segments that ended some time ago are flushed so that recovery points advance also
    without configured flushes. ``mended`` is called with each log returned to service.
    """
    now_ms = manager.now_ms()

    def move(_: TopicPartition, log: Log) -> Steps[None]:
        if log.durability.out_of_service:
            if (yield from mend(log)):
                mended(log)
            log.durability.check_in_service()
        yield from flushing.snapshot_in_steps(log)
        syncs = flushing.syncs_of_ended(log, now_ms)
        if syncs is not None:
            yield from flushing.flush_in_steps(log, syncs)

    yield from _each(manager, failed, move)
    yield from manager.checkpoint(high_watermark)


def _each(
    manager: LogManager,
    failed: Failed,
    work: Callable[[TopicPartition, Log], Steps[None]],
) -> Steps[None]:
    """Apply an operation to every log."""
    for number, (key, log) in enumerate(list(manager.logs.items()), 1):
        if log.closed is not None:
            continue
        try:
            yield from work(key, log)
        except LogUnavailable as reason:
            # Otherwise the log was deleted meanwhile, which is no error.
            if log.closed is None:
                failed(log.directory, reason)
        except Exception as error:
            failed(log.directory, error)
        if not number % _LOGS_PER_STEP:
            yield None
