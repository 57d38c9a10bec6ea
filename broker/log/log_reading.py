"""Reads of a log: the position of batches, as a `FileSlice` that the network sends.

Kafka's ``LocalLog.read``. The network sends the slice with ``sendfile``, so records are
not copied into this process.
"""

from __future__ import annotations

from broker.disk.storage import FileSlice
from broker.log.log import Log
from broker.log.segments.transaction_index import AbortedTransaction
from broker.log.transactions import aborted_between
from broker.protocol.errors import ErrorCode, KafkaError


def read(
    log: Log, offset: int, max_bytes: int, up_to_offset: int, min_one: bool = True
) -> FileSlice | None:
    """Return the slice of the batches from ``offset`` to below ``up_to_offset``.

    The slice begins with the batch that contains ``offset``, and may end within a
    batch. It exceeds ``max_bytes`` only to contain its first batch, and only if
    ``min_one`` is set. None if no batch is available. Raises OFFSET_OUT_OF_RANGE or
    KAFKA_STORAGE_ERROR. Cost: that of `Segment.locate`; no I/O near the log's end.
    """
    if log.closed is not None:
        log.check_open()
    log_end_offset = log.log_end_offset
    if not log.log_start_offset <= offset <= log_end_offset:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"offset {offset}, the log is {log.log_start_offset} to {log_end_offset}",
        )
    if offset >= up_to_offset:
        return None
    try:
        segments = log.segments
        number = segments.index_of(offset)
        segment = segments[number]
        found = segment.locate(offset)
        while found is None:
            # Compaction may have removed the last batches of a segment.
            number += 1
            if number == len(segments):
                return None
            segment = segments[number]
            found = segment.locate(offset)
        position, first_size = found
        end = segment.size
        if up_to_offset < segments.end_of(number, log_end_offset):
            bound = segment.locate(up_to_offset)
            if bound is not None:
                end, _ = bound
        available = end - position
        if available < first_size or (first_size > max_bytes and not min_one):
            return None
        return FileSlice(
            segment.file, position, min(available, max(max_bytes, first_size))
        )
    except OSError as error:
        raise log.storage.failure(log.directory, error) from error


def aborted_in(
    log: Log, offset: int, records: FileSlice, up_to_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions with batches in a slice from ``offset`` on.

    Raises KAFKA_STORAGE_ERROR.
    """
    segments = log.segments
    number = segments.index_of(offset)
    if segments[number].file is not records.file:
        # Compaction removed the end of that segment; the slice is of a later one.
        return aborted_between(segments, offset, up_to_offset)
    try:
        behind = segments[number].offset_behind(records.position + records.size)
    except OSError as error:
        raise log.storage.failure(log.directory, error) from error
    if behind is None:
        behind = segments.end_of(number, log.log_end_offset)
    return aborted_between(segments, offset, min(behind, up_to_offset))
