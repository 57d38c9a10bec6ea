"""Flushes of a log: Kafka's flush policy, and the orderly stop.

As in Kafka, flushing is left to the kernel unless ``flush.messages`` or ``flush.ms``
are set: replication protects the records. Ended segments are nevertheless flushed some
time later, since recovery begins at the first unflushed segment.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.log.durability import Syncs
from broker.log.log import Log
from broker.log.operation import in_steps, operation
from broker.log.producers import (
    snapshot_path,
    write_content,
    write_snapshot,
)
from broker.log.steps import Steps

# The kernel writes back pages that are older than half of this age.
ENDED_FLUSH_AGE_MS: Final = 60_000


def flush_due(log: Log, now_ms: int) -> bool:
    """Return whether ``flush.messages`` or ``flush.ms`` requires a flush."""
    waiting = log.log_end_offset - log.durability.recovery_point
    config = log.config
    return waiting > 0 and (
        waiting >= config.flush_messages
        # A last flush in the future means that the clock was put back.
        or not 0 <= now_ms - log.flushed_ms < config.flush_ms
    )


@operation
def flush(log: Log, now_ms: int | None = None) -> None:
    """Make all data durable; ``now_ms`` starts a new ``flush.ms`` interval.

    Raises KAFKA_STORAGE_ERROR. After a failed sync the log is out of service.
    """
    log.durability.flush(log.segments.active, log.log_end_offset)
    if now_ms is not None:
        log.flushed_ms = now_ms


def syncs_of_ended(log: Log, now_ms: int) -> Syncs | None:
    """Return the syncs of segments that ended at least a minute ago, if any.

    By then the kernel has written most of their pages, so the syncs are short. After a
    crash, only later segments are recovered. Report the outcome as for `due_syncs`.
    """
    log.check_open()
    offset = 0
    for number in range(1, len(log.segments)):
        # A time in the future counts as old: the clock was put back.
        if not 0 <= now_ms - log.segments[number].created_ms < ENDED_FLUSH_AGE_MS:
            offset = log.segments[number].base_offset
    if offset <= log.durability.recovery_point:
        return None
    return log.durability.syncs_of_ended(offset)


@in_steps
def flush_in_steps(log: Log, syncs: Syncs | None) -> Steps[None]:
    """Run the syncs of `due_syncs` or `syncs_of_ended`, and record the outcome."""
    if syncs is None:
        return
    try:
        yield syncs.run
    except OSError as error:
        raise log.durability.sync_failed(error) from error
    log.durability.done(syncs)


@in_steps
def snapshot_in_steps(log: Log) -> Steps[None]:
    """Write the snapshot of many producers that a roll has deferred, if any."""
    producers, offset = log.producers, log.frozen_at
    frozen = producers.frozen
    content = yield from producers.encode_frozen()
    if content is None:
        return
    path = snapshot_path(log.directory, offset)
    yield partial(write_content, log.storage, path, content)
    if producers.frozen is frozen:
        producers.thaw()
        log.durability.add(path)
    else:
        # The log was truncated meanwhile, so the snapshot may not match its batches.
        log.doomed.discard(log.storage, path)


def due_syncs(log: Log) -> Syncs | None:
    """Return the work of a flush, for another thread; None if there is none.

    The caller reports to `flushed` or ``durability.sync_failed``.
    """
    return log.durability.syncs(log.segments.active, log.log_end_offset)


def flushed(log: Log, syncs: Syncs, now_ms: int) -> None:
    """Record finished syncs; ``now_ms`` starts a new ``flush.ms`` interval."""
    log.durability.done(syncs)
    log.flushed_ms = now_ms


@operation
def settle(log: Log) -> None:
    """Make all data, indexes and producers durable for an orderly stop.

    The next start then reads little and recovers nothing. Does nothing if the log has
    not changed since the last call. Raises KAFKA_STORAGE_ERROR. Accesses only this log.
    """
    durability, end = log.durability, log.log_end_offset
    if log.settled_offset == end == log.recovery_point and durability.everything:
        return
    durability.check_in_service()
    active = log.segments.active
    active.cut()
    durability.add(write_snapshot(log.storage, log.directory, end, log.producers))
    indexes = active.write_indexes()
    durability.run(durability.syncs(active, end, indexes))
    # Thousands of settled logs would otherwise use up the file descriptors.
    active.release_indexes()
    log.settled_offset = end
