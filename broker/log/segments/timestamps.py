"""The largest timestamp of a stored batch, from its records.

The header of a batch that was stored without validation may have another timestamp.
Recovery, compaction and searches by time therefore use the records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from broker.protocol.buffer import Buffer
from broker.protocol.errors import KafkaError
from broker.protocol.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader
from broker.protocol.records.batch_records import as_long, largest_timestamp
from broker.protocol.records.validation import contents_of


def newest_in(
    header: BatchHeader, batch: Buffer
) -> Generator[Callable[[], None] | None, None, int]:
    """Return the largest timestamp of a complete batch, in steps.

    Uses the header under LogAppendTime, and if the records cannot be read.
    """
    if header.attributes & LOG_APPEND_TIME or header.record_count <= 0:
        return header.max_timestamp
    try:
        found = yield from contents_of(header.attributes, header.record_count, batch)
        return max(as_long(header.base_timestamp + found.largest_delta), NO_TIMESTAMP)
    except KafkaError:
        # Compaction left gaps, or the batch cannot be read.
        pass
    try:
        return (yield from largest_timestamp(header, batch)).timestamp
    except KafkaError:
        return header.max_timestamp


def newest_of(header: BatchHeader, batch: Buffer) -> int:
    """Return the largest timestamp of a complete batch, in one step."""
    steps = newest_in(header, batch)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        newest: int = done.value
        return newest
