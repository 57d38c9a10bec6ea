"""When a log reaches the disk: Kafka's flush policy, and the orderly stop.

Kafka leaves flushing to the kernel unless ``flush.messages`` or ``flush.ms`` say
otherwise, and so does this log; replication is what protects a record. But what has
ended is flushed some time later anyway, since recovery begins where that stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.log.config import LONG_MAX, LogConfig
from broker.log.durability import storage_error
from broker.log.producers import write_snapshot

if TYPE_CHECKING:
    from broker.log.log import Log

# The kernel writes back pages that are older than half of this.
ENDED_FLUSH_AGE_MS: Final = 60_000


def is_asked_for(config: LogConfig) -> bool:
    """Tell whether ``flush.messages`` or ``flush.ms`` is set."""
    return min(config.flush_messages, config.flush_ms) < LONG_MAX


def flush_due(log: Log, now_ms: int) -> bool:
    """Tell whether ``flush.messages`` or ``flush.ms`` asks for a flush."""
    waiting = log.log_end_offset - log.durability.recovery_point
    config = log.config
    return waiting > 0 and (
        waiting >= config.flush_messages or now_ms - log.flushed_ms >= config.flush_ms
    )


def flush(log: Log, now_ms: int | None = None) -> None:
    """Make everything durable; ``now_ms`` begins a new ``flush.ms``.

    Raises KAFKA_STORAGE_ERROR, and after a failed sync the log stays out of
    service.
    """
    log.durability.flush(log.segments.active, log.log_end_offset)
    if now_ms is not None:
        log.flushed_ms = now_ms


def flush_ended(log: Log, now_ms: int, age_ms: int = ENDED_FLUSH_AGE_MS) -> None:
    """Make the segments durable that ended ``age_ms`` ago or earlier.

    By then the kernel has written most of them, so that this stops nobody for
    long; and a crash has only the segments since to recover.
    """
    offset = 0
    for number in range(1, len(log.segments)):
        if now_ms - log.segments[number].created_ms >= age_ms:
            offset = log.segments[number].base_offset
    if offset > log.durability.recovery_point:
        log.durability.run(log.durability.job_for_ended(offset))


def close(log: Log) -> None:
    """Flush, write indexes and producers: an orderly stop. Raises KafkaError."""
    log.flush()
    active = log.segments.active
    offset = log.log_end_offset
    try:
        active.cut()
        for file in active.write_indexes():
            file.sync()
        write_snapshot(log.storage, log.directory, offset, log.producers)
    except OSError as error:
        raise storage_error(log.directory, error) from error
