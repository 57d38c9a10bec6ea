"""Opening a segment of an earlier process, and truncating a segment.

There are three ways to open a segment, by the degree of trust. `load_indexes` trusts
log and indexes (a segment that ended and was flushed). `resume` checks the log after
the last index entry (the active segment after an orderly stop). `recover` reads and
checks the whole segment (Kafka's ``LogSegment.recover``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.log.segments.log_config import LONG_MAX
from broker.log.segments.segment import RELATIVE_MAX, Segment
from broker.log.segments.timestamps import newest_of
from broker.protocol.buffer import Buffer
from broker.protocol.errors import KafkaError
from broker.protocol.records.batch import NO_TIMESTAMP, BatchHeader, check_crc, corrupt

_READ_BYTES: Final = 1 << 20


def load_indexes(segment: Segment) -> bool:
    """Load the index files; return False if they are missing or invalid."""
    segment.remember_nothing()
    offsets, times = segment.offset_index, segment.time_index
    if not (offsets.load() and times.load()):
        return False
    _, last_position = offsets.last() or (0, -1)
    if last_position >= segment.size:
        return False
    _restore_max_timestamp(segment)
    return True


def resume(segment: Segment) -> int | None:
    """Open a segment for appends; return the next offset.

    Returns None unless indexes and log are in the state after an orderly stop.
    """
    if not load_indexes(segment):
        return None
    try:
        next_offset, end = _remember_tail(segment)
    except KafkaError:
        return None
    return next_offset if end == segment.size else None


class Recovered(NamedTuple):
    """A recovered segment: its next offset, the bytes cut off, and the reason."""

    next_offset: int
    cut_bytes: int
    reason: str


def recover(
    segment: Segment,
    on_batch: Callable[[BatchHeader], None],
    end_offset: int = LONG_MAX,
) -> Recovered:
    """Keep valid batches, cut off the rest, and rebuild the indexes.

    Batches at or above ``end_offset``, the start of the next segment, are invalid here.
    Calls ``on_batch`` for each batch kept. Reads the whole segment, checks every CRC,
    and takes timestamps from the records.
    """
    segment.reset()
    next_offset, end = segment.base_offset, 0
    end_offset = min(end_offset, segment.base_offset + RELATIVE_MAX + 1)
    # After the first corrupt batch, no batch is trusted.
    reason = "it ends within a batch"
    try:
        for position, header, batch in checked(segment):
            if not next_offset <= header.base_offset <= header.last_offset < end_offset:
                reason = (
                    f"a batch of offsets {header.base_offset} to {header.last_offset} "
                    f"stands where those from {next_offset} to {end_offset} belong"
                )
                break
            _note(segment, position, header, newest_of(header, batch))
            on_batch(header)
            next_offset, end = header.last_offset + 1, position + header.size
    except KafkaError as damage:
        reason = damage.message or reason
    torn = segment.size - end
    if torn:
        segment.file.truncate(end)
        segment.size = end
    return Recovered(next_offset, torn, reason)


def truncate(segment: Segment, offset: int) -> int:
    """Cut off every batch that ends at ``offset`` or later; return the next offset.

    The next offset is lower than ``offset`` if ``offset`` was within a batch. The
    segment is torn afterwards: its file is truncated later.
    """
    found = segment.locate(offset)
    if found is None:
        return offset
    position, _ = found
    _, header = next(segment.headers(position))
    segment.size = position
    segment.tear()
    segment.indexes_full = False
    segment.aborted.truncate(offset)
    try:
        segment.offset_index.truncate(position, column=1)
        segment.time_index.truncate(header.base_offset - segment.base_offset, column=1)
        _restore_max_timestamp(segment)
        _remember_tail(segment)
    except OSError:
        # The log is taken out of service, but its batches can still be located.
        segment.remember_nothing()
        raise
    return min(offset, header.base_offset)


def _restore_max_timestamp(segment: Segment) -> None:
    segment.max_timestamp, relative = segment.time_index.last() or (NO_TIMESTAMP, 0)
    segment.offset_of_max_timestamp = segment.base_offset + relative


def _remember_tail(segment: Segment) -> tuple[int, int]:
    """Read the batches from the last index entry on.

    Returns the next offset and the end of the last complete batch. Each entry of the
    offset index has a time index entry. The largest timestamp is therefore the last of
    that index or in a later batch.
    """
    entry = segment.offset_index.last()
    _, end = entry or (0, 0)
    next_offset = segment.base_offset
    segment.remember_from(segment.base_offset)
    if end:
        segment.first_timestamp = next(segment.headers())[1].max_timestamp
    is_first = True
    for position, header in segment.headers(end):
        last = segment.base_offset + RELATIVE_MAX
        if not next_offset <= header.base_offset <= header.last_offset <= last:
            raise corrupt(f"{segment!r} has offset {header.base_offset} at {position}")
        if is_first and entry:
            if header.last_offset - segment.base_offset != entry[0]:
                raise corrupt(f"{segment!r} has no batch {entry} of its index")
            segment.remember_from(header.base_offset)
        is_first = False
        _note(segment, position, header, header.max_timestamp)
        next_offset, end = header.last_offset + 1, position + header.size
    return next_offset, end


def _note(
    segment: Segment, position: int, header: BatchHeader, max_timestamp: int
) -> None:
    segment.note(
        header.base_offset,
        header.last_offset,
        max_timestamp,
        position,
        header.size,
    )


def checked(segment: Segment) -> Iterator[tuple[int, BatchHeader, Buffer]]:
    """Yield position, header and bytes of each batch; check each CRC."""
    data, data_at = memoryview(b""), 0
    for position, header in segment.headers():
        end = position + header.size
        if end > data_at + len(data):
            data_at = position
            wanted = max(_READ_BYTES, header.size)
            data = memoryview(segment.file.read(position, wanted))
        batch = data[position - data_at : end - data_at]
        check_crc(batch, header.crc)
        yield position, header, batch
