"""Periodic work on all logs of a broker: Kafka's tasks of ``LogManager``.

Each is a generator of steps over the logs; where a device may take its time, it yields
a call for another thread. A log that fails loses only its own turn: ``failed`` is
called with it, and the next round tries it again.
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

# Receives a path and its error; the round goes on.
Failed = Callable[[str, Exception], None]

# Logs that are looked at in one step where there is nothing to do for them.
_LOGS_PER_STEP: Final = 32
_TRY_AGAIN_MS: Final = 60_000


def retention(
    manager: LogManager, up_to: Callable[[TopicPartition], int], failed: Failed
) -> Steps[None]:
    """Apply retention to every log, and forget producers that have expired.

    ``up_to`` gives the offset (the high watermark) below which records may go.
    """

    def trim(key: TopicPartition, log: Log) -> Steps[None]:
        now_ms = manager.now_ms()
        yield from log.producers.expire(now_ms - log.config.producer_id_expiration_ms)
        if trimming.retention(log, now_ms, up_to(key)):
            yield from removal(manager, failed)

    return _each(manager, failed, trim)


def removal(manager: LogManager, failed: Failed) -> Steps[None]:
    """Remove due paths; those that cannot be removed are tried again later."""
    while (path := manager.doomed.take(manager.now_ms())) is not None:
        try:
            yield from manager.remove(path)
        except OSError as error:
            failed(path, error)
            manager.doomed.add(path, manager.now_ms(), _TRY_AGAIN_MS)


def flush(manager: LogManager, failed: Failed) -> Steps[None]:
    """Flush the logs that ``flush.ms`` (or ``.messages``) wants on disk."""
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

    Segments that ended some time ago are flushed so that recovery points move without a
    requested flush. ``mended`` is called with each log that is in service again.
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
    """Do a piece of work on every log."""
    for number, (key, log) in enumerate(list(manager.logs.items()), 1):
        if log.closed is not None:
            continue
        try:
            yield from work(key, log)
        except LogUnavailable as reason:
            # Otherwise it was deleted meanwhile, which is no fault.
            if log.closed is None:
                failed(log.directory, reason)
        except Exception as error:
            failed(log.directory, error)
        if not number % _LOGS_PER_STEP:
            yield None
