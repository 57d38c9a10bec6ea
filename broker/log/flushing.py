"""When a log reaches the disk: Kafka's flush policy, and the orderly stop.

Kafka leaves flushing to the kernel unless ``flush.messages`` or ``flush.ms`` say
otherwise, and so does this log; replication is what protects a record. But what has
ended is flushed some time later anyway, since recovery begins where that stops.
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

# The kernel writes back pages that are older than half of this.
ENDED_FLUSH_AGE_MS: Final = 60_000


def flush_due(log: Log, now_ms: int) -> bool:
    """Return whether ``flush.messages`` or ``flush.ms`` asks for a flush."""
    waiting = log.log_end_offset - log.durability.recovery_point
    config = log.config
    return waiting > 0 and (
        waiting >= config.flush_messages
        # A last flush in the future means that the clock was put back.
        or not 0 <= now_ms - log.flushed_ms < config.flush_ms
    )


@operation
def flush(log: Log, now_ms: int | None = None) -> None:
    """Make everything durable; ``now_ms`` begins a new ``flush.ms``.

    Raises KAFKA_STORAGE_ERROR, and after a failed sync the log stays out of
    service.
    """
    log.durability.flush(log.segments.active, log.log_end_offset)
    if now_ms is not None:
        log.flushed_ms = now_ms


def syncs_of_ended(log: Log, now_ms: int) -> Syncs | None:
    """Return what makes the segments durable that ended a minute ago or earlier.

    By then the kernel has written most of them, so that this is quick; and a crash has
    only the segments since to recover. Report as for `due_syncs`.
    """
    log.check_open()
    offset = 0
    for number in range(1, len(log.segments)):
        # One from the future is as old as can be: the clock was put back.
        if not 0 <= now_ms - log.segments[number].created_ms < ENDED_FLUSH_AGE_MS:
            offset = log.segments[number].base_offset
    if offset <= log.durability.recovery_point:
        return None
    return log.durability.syncs_of_ended(offset)


@in_steps
def flush_in_steps(log: Log, syncs: Syncs | None) -> Steps[None]:
    """Run the syncs of `due_syncs` or `syncs_of_ended`, and note the outcome."""
    if syncs is None:
        return
    try:
        yield syncs.run
    except OSError as error:
        raise log.durability.sync_failed(error) from error
    log.durability.done(syncs)


@in_steps
def snapshot_in_steps(log: Log) -> Steps[None]:
    """Write the snapshot of many producers that a roll has put off, if one has."""
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
        # The log was cut meanwhile: what lies before this offset may be another past.
        log.doomed.discard(log.storage, path)


def due_syncs(log: Log) -> Syncs | None:
    """Return the work of a flush, for another thread; None if nothing.

    The caller reports to `flushed` or ``durability.sync_failed``.
    """
    return log.durability.syncs(log.segments.active, log.log_end_offset)


def flushed(log: Log, syncs: Syncs, now_ms: int) -> None:
    """Note that syncs are done; ``now_ms`` begins a new ``flush.ms``."""
    log.durability.done(syncs)
    log.flushed_ms = now_ms


@operation
def settle(log: Log) -> None:
    """Leave on the disk what an orderly stop leaves: all data, indexes and producers.

    A start after it reads little and recovers nothing. Nothing is done for a log that
    has not changed since. Raises KAFKA_STORAGE_ERROR. Touches this log only.
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
    # Thousands of logs that are settled would hold all descriptors that there are.
    active.release_indexes()
    log.settled_offset = end
