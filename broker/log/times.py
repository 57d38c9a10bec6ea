"""Offsets by timestamp, for ListOffsets: Kafka's ``fetchOffsetByTimestamp`` (KIP-33).

The time index returns a position before which every record is older. From there batches
are unpacked until the record is found; no other read unpacks batches. The timestamps of
headers are not used, since they may be wrong in old batches.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.log.log import Log
from broker.log.operation import in_steps
from broker.log.segments.segment import Segment
from broker.log.segments.timestamps import newest_in
from broker.log.steps import Steps
from broker.protocol.records.batch_records import heads_in_steps


class TimestampOffset(NamedTuple):
    """A record's timestamp, its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


@in_steps
def offset_for_timestamp(log: Log, timestamp: int) -> Steps[TimestampOffset | None]:
    """Find the first record, by offset, at or after a time; None if all are older."""
    for segment in tuple(log.segments):
        if segment.max_timestamp >= timestamp and log.segments.holds(segment):
            found = yield from _search(log, segment, timestamp)
            if found is not None:
                return found
    return None


@in_steps
def offset_of_max_timestamp(log: Log) -> Steps[TimestampOffset | None]:
    """Find the first record of the largest timestamp; None without records."""
    newest: Segment | None = None
    for segment in log.segments:
        if segment.size and (
            newest is None or segment.max_timestamp > newest.max_timestamp
        ):
            newest = segment
    if newest is None:
        return None
    return (yield from _search(log, newest, newest.max_timestamp))


def _search(
    log: Log, segment: Segment, timestamp: int
) -> Steps[TimestampOffset | None]:
    older = segment.time_index.floor(timestamp - 1)
    from_offset = log.log_start_offset
    _, relative = older or (timestamp, 0)
    found = segment.locate(max(segment.base_offset + relative, from_offset))
    if found is None:
        return None
    first, _ = found
    for position, header in segment.headers(first):
        batch = segment.file.read(position, header.size)
        if (yield from newest_in(header, batch)) < timestamp:
            yield None
            continue
        for head in heads_in_steps(header, batch):
            if head is None:
                yield None
            elif head.timestamp >= timestamp and head.offset >= from_offset:
                return TimestampOffset(
                    head.timestamp, head.offset, header.partition_leader_epoch
                )
        yield None
    return None
