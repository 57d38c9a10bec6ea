"""Offsets by time stamp, for ListOffsets: Kafka's ``fetchOffsetByTimestamp`` (KIP-33).

The time index leads to a place before which every record is older. From there batches
are skipped by their header's largest time stamp, and the records of the first that may
hold the answer are unpacked: the one case in which a read looks inside a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.log.batch import BatchHeader
from broker.log.records import Record, read_records
from broker.log.segment import Segment

if TYPE_CHECKING:
    from broker.log.log import Log


class TimestampOffset(NamedTuple):
    """A record's time stamp, offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """Return the first record at or after a time; None if all are older.

    First by offset, not by time, as in Kafka.
    """
    for segment in log.segments:
        if segment.max_timestamp >= timestamp:
            found = _search(segment, timestamp, log.log_start_offset)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """Return the first record of the largest time stamp; None without records."""
    newest: Segment | None = None
    for segment in log.segments:
        if segment.size and (
            newest is None or segment.max_timestamp > newest.max_timestamp
        ):
            newest = segment
    if newest is None:
        return None
    return _search(newest, newest.max_timestamp, log.log_start_offset)


def _search(
    segment: Segment, timestamp: int, from_offset: int
) -> TimestampOffset | None:
    older = segment.time_index.floor(timestamp - 1)
    start = max(segment.base_offset + (older[1] if older else 0), from_offset)
    place = segment.locate(start)
    if place is None:
        return None
    for position, header in segment.headers(place[0]):
        if header.max_timestamp >= timestamp:
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return TimestampOffset(
                        record.timestamp, record.offset, header.partition_leader_epoch
                    )
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    return read_records(header, segment.file.read(position, header.size))
