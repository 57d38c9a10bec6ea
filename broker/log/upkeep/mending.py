"""Return to service without a restart: a log whose flush found the disk full.

After a failed ``fsync`` Linux marks the pages clean: the next one reports success
though nothing was written (Rebello et al., "Can Applications Recover from fsync
Failures?", USENIX ATC 2020). Another sync therefore proves nothing. Most of the log can
still be read: every batch that is not known to be durable is checked, written once more
in place, and synced. If a batch has changed, or the disk is still full, the log stays
out of service.

Mending is done only after a shortage of space: after an error of the device, a later
write cannot be trusted, and a restart has to recover. Kafka takes the whole directory
offline in both cases.
"""

from __future__ import annotations

from typing import Final

from broker.log.log import Log
from broker.log.operation import operation
from broker.log.segments.repair import checked, recover
from broker.log.segments.segment import Segment
from broker.protocol.errors import ErrorCode, KafkaError

_CHUNK_BYTES: Final = 1 << 20


@operation
def mend(log: Log) -> bool:
    """Return a log to service if a full disk ended it; return whether it did.

    Raises KAFKA_STORAGE_ERROR if that fails. Reads and writes the undurable part: the
    active segment, and those that ended since the last flush.
    """
    durability = log.durability
    if not durability.mendable:
        return False
    undurable = [*durability.unflushed, log.segments.active]
    for segment in undurable:
        _check(segment)
    for segment in undurable:
        _write_again(segment)
    durability.take_up()
    # It leaves service again if this fails.
    durability.flush(log.segments.active, log.log_end_offset)
    return True


def _check(segment: Segment) -> None:
    """Raise CORRUPT_MESSAGE unless every batch can still be read as it was written."""
    end = 0
    for position, header, _ in checked(segment):
        end = position + header.size
    if end != segment.size:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{segment!r}: only {end} bytes are left of a write that was not synced",
        )


def _write_again(segment: Segment) -> None:
    """Write the bytes of a segment where they stand, and build its indexes anew."""
    position = 0
    while position < segment.size:
        data = segment.file.read(position, min(_CHUNK_BYTES, segment.size - position))
        segment.file.write(position, (data,), len(data))
        position += len(data)
    try:
        recover(segment, lambda _: None)
    except OSError:
        # Until the next attempt, its batches can be found without indexes.
        segment.remember_nothing()
        raise
