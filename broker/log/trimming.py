"""Shortening of a log: at its start by retention or DeleteRecords, or at its end.

Retention removes whole segments, oldest first. Where the active one is itself too old a
new one takes its place, as in Kafka, so that an idle partition empties too; the others
go first, so that a full disk frees itself. DeleteRecords moves the start within a
segment and drops those before it. Dropped files are renamed, and removed later. A
follower truncates to the offset where its leader's history diverges from its own.
"""

from __future__ import annotations

from functools import partial

from broker.log.log import Log
from broker.log.operation import in_steps, operation
from broker.log.producers import (
    Producers,
    replayed,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from broker.log.segments.log_config import LONG_MAX
from broker.log.segments.repair import truncate
from broker.log.steps import InSteps, Steps
from broker.protocol.errors import ErrorCode, KafkaError


@operation
def retention(log: Log, now_ms: int, up_to_offset: int) -> int:
    """Drop segments that are too old or too many; return their number.

    A segment with an offset at or above ``up_to_offset``, the high watermark, is kept.
    """
    if not log.config.deletes:
        return _drop_below(log, log.log_start_offset)
    removable = 0
    last = len(log.segments) - 1
    while removable < last and _expired(log, removable, now_ms, up_to_offset):
        removable += 1
    if log.config.retention_bytes >= 0:
        excess = log.size_bytes - log.config.retention_bytes
        for number in range(last):
            excess -= log.segments[number].size
            if excess < 0 or _end_of(log, number) > up_to_offset:
                break
            removable = max(removable, number + 1)
    start = log.segments[removable].base_offset
    dropped = _drop_below(log, max(start, log.log_start_offset))
    if removable == last and _expired(log, len(log.segments) - 1, now_ms, up_to_offset):
        dropped += _drop_the_last(log, now_ms)
    return dropped


def _drop_the_last(log: Log, now_ms: int) -> int:
    """Begin a new segment and drop the active one, which is too old itself.

    On a full disk there is no room for the files that a roll writes of an ending
    segment, and a dropped one needs none.
    """
    end = log.log_end_offset
    log.begin(log.new_segment(end, now_ms), None)
    dropped = _drop_below(log, end)
    log.durability.add(write_snapshot(log.storage, log.directory, end, log.producers))
    return dropped


def _expired(log: Log, number: int, now_ms: int, up_to_offset: int) -> bool:
    retention_ms = log.config.retention_ms
    segment = log.segments[number]
    if retention_ms < 0 or not segment.size or _end_of(log, number) > up_to_offset:
        return False
    newest_ms = segment.max_timestamp
    if newest_ms < 0:
        newest_ms = segment.created_ms
    return now_ms - newest_ms > retention_ms


def _end_of(log: Log, number: int) -> int:
    return log.segments.end_of(number, log.log_end_offset)


@operation
def delete_records_before(log: Log, offset: int) -> None:
    """Move the log's start to ``offset``; raise OFFSET_OUT_OF_RANGE beyond its end."""
    if not 0 <= offset <= log.log_end_offset:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"offset {offset}, the log ends at {log.log_end_offset}",
        )
    if offset > log.log_start_offset:
        _drop_below(log, offset)


def _drop_below(log: Log, offset: int) -> int:
    """Move the log's start to ``offset``: drop the segments wholly below."""
    log.log_start_offset = offset
    dropped = []
    while len(log.segments) > 1 and log.segments[1].base_offset <= offset:
        dropped.append(log.segments.drop_oldest())
    log.durability.gone(dropped)
    for segment in dropped:
        segment.doom(log.doomed)
    if dropped:
        _drop_snapshots(log, log.segments[0].base_offset)
    log.epochs.truncate_from_start(offset)
    return len(dropped)


def _drop_snapshots(log: Log, below: int) -> None:
    for at in snapshot_offsets(log.storage, log.directory):
        if at < below:
            log.doomed.discard(log.storage, snapshot_path(log.directory, at))


def producers_before(log: Log, offset: int) -> InSteps[Producers]:
    """Return the producers as they are before ``offset``, which the log is cut to."""
    while True:
        log.check_open()
        if not log.segments[0].base_offset <= offset < log.log_end_offset:
            return Producers()
        segments = tuple(log.segments)
        try:
            producers = yield from replayed(
                log.storage, log.directory, segments, offset, log.doomed
            )
        except OSError as error:
            raise log.storage.failure(log.directory, error) from error
        # Otherwise some were compacted or deleted between two steps.
        if tuple(log.segments) == segments:
            return producers


@operation
def truncate_to(log: Log, offset: int, now_ms: int, producers: Producers) -> int:
    """Cut the log so that it ends at ``offset``; return its new end.

    A batch that holds ``offset`` goes as a whole, so the end may be lower. An epoch
    that begins at the end, where all its records have been deleted, goes in any case:
    it may be what parts the log from its leader's. Nothing is removed from the disk
    here: see `cut_in_steps`. ``producers`` are those of `producers_before`, in exchange
    for those that were known.
    """
    if offset >= log.log_end_offset:
        return _cut_nothing(log)
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset, now_ms, producers)
        return offset
    try:
        while log.segments.active.base_offset > offset:
            log.segments.drop_newest().doom(log.doomed)
        end = truncate(log.segments.active, offset)
        log.log_start_offset = min(log.log_start_offset, end)
        _ends_at(log, end, producers)
    except OSError as error:
        raise log.durability.failed(error) from error
    return end


def _cut_nothing(log: Log) -> int:
    end = log.log_end_offset
    if log.epochs.truncate_from_end(end):
        log.durability.truncated(end, tuple(log.segments))
    return end


@operation
def truncate_fully(log: Log, offset: int, now_ms: int, nobody: Producers) -> None:
    """Remove all records and go on at ``offset``; no producer or epoch is known then.

    An epoch of before would have the leader say that histories part, again and again.
    ``nobody`` is in exchange for the producers that were known.
    """
    try:
        # First of all: while segments are there, they say the same.
        _drop_snapshots(log, LONG_MAX)
        while len(log.segments) > 1:
            log.segments.drop_newest().doom(log.doomed)
        log.segments.active.doom(log.doomed)
        log.segments.restart(log.new_segment(offset, now_ms))
        log.log_start_offset = offset
        log.epochs.truncate_from_end(0)
        _ends_at(log, offset, nobody)
    except OSError as error:
        raise log.durability.failed(error) from error


def _ends_at(log: Log, offset: int, producers: Producers) -> None:
    """Bring epochs, producers and recovery point in line with a new end."""
    log.log_end_offset = offset
    # Other records may come to end where those ended that the disk has.
    log.settled_offset = -1
    log.cleaner_offset = min(log.cleaner_offset, offset)
    log.durability.truncated(offset, tuple(log.segments))
    log.epochs.truncate_from_end(offset)
    log.producers.exchange(producers)


@in_steps
def cut_in_steps(log: Log) -> Steps[None]:
    """Cut the file of a log that was truncated, durably.

    Otherwise the next append cuts it, and a loss of power may bring the cut part back,
    with later segments behind it. Names are synced first: no gap is left before a
    dropped segment.
    """
    active = log.segments.active
    if not active.torn:
        return
    try:
        yield partial(log.storage.sync_directory, log.directory)
        yield active.cut
        yield active.file.sync
    except OSError as error:
        raise log.durability.failed(error) from error


@operation
def recovery_floor(log: Log, offset: int) -> int:
    """Return the recovery point that a truncation to ``offset`` leaves true.

    The truncation may remove a batch that begins below ``offset``. Where it leaves no
    segment, nothing that was written before is true.
    """
    if offset < log.segments[0].base_offset:
        return 0
    return log.segments[log.segments.index_of(offset)].base_offset
