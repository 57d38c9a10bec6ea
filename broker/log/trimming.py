"""Shortening of a log: at its start by retention or DeleteRecords, or at its end.

Retention removes whole segments, oldest first. If the active segment itself is too old,
a new one replaces it, as in Kafka, so that an idle partition becomes empty. Older
segments are removed before, to free space on a full disk. DeleteRecords moves the start
within a segment and drops earlier segments. Dropped files are renamed, and removed
later. A follower truncates its log to the offset at which its leader's log diverges.
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
    """Drop segments beyond the age or size limit; return their number.

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

    A roll would write files for the ended segment, which a full disk has no space for
    and a dropped segment does not need.
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
    """Move the log's start to ``offset``; drop the segments entirely below."""
    log.log_start_offset = offset
    dropped = []
    while len(log.segments) > 1 and log.segments[1].base_offset <= offset:
        dropped.append(log.segments.drop_oldest())
    log.durability.note_removed(dropped)
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
    """Return the producer state before ``offset``, to which the log is truncated."""
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
        # Otherwise segments were compacted or deleted between two steps: repeat.
        if tuple(log.segments) == segments:
            return producers


@operation
def truncate_to(log: Log, offset: int, now_ms: int, producers: Producers) -> int:
    """Truncate the log to ``offset``; return its new end.

    A batch that contains ``offset`` is removed as a whole, so the end may be lower. An
    epoch that begins at the end and has no records left is removed in any case: it may
    be the divergence from the leader. The file is truncated later, by `cut_in_steps`.
    ``producers`` is the result of `producers_before`; afterwards it holds the former
    state.
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
def truncate_fully(log: Log, offset: int, now_ms: int, empty: Producers) -> None:
    """Remove all records, producers and epochs; continue at ``offset``.

    If an old epoch remained, the leader would report a divergence again and again.
    ``empty`` is an empty state; afterwards it holds the former state.
    """
    try:
        # Removed first: while segments remain, they contain the same state.
        _drop_snapshots(log, LONG_MAX)
        while len(log.segments) > 1:
            log.segments.drop_newest().doom(log.doomed)
        log.segments.active.doom(log.doomed)
        log.segments.restart(log.new_segment(offset, now_ms))
        log.log_start_offset = offset
        log.epochs.truncate_from_end(0)
        _ends_at(log, offset, empty)
    except OSError as error:
        raise log.durability.failed(error) from error


def _ends_at(log: Log, offset: int, producers: Producers) -> None:
    """Adjust epochs, producers and recovery point to a new end."""
    log.log_end_offset = offset
    # Other records may later end at the same offset as those on disk.
    log.settled_offset = -1
    log.cleaner_offset = min(log.cleaner_offset, offset)
    log.durability.truncated(offset, tuple(log.segments))
    log.epochs.truncate_from_end(offset)
    log.producers.exchange(producers)


@in_steps
def cut_in_steps(log: Log) -> Steps[None]:
    """Truncate the file of a truncated log, durably.

    Otherwise the next append truncates it, and after a power loss the removed part may
    reappear, with later segments after it. Names are synced first, so that no gap
    remains before a dropped segment.
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
    """Return the recovery point that stays valid after a truncation to ``offset``.

    The truncation may remove a batch that begins below ``offset``. If it removes all
    segments, the recovery point is 0.
    """
    if offset < log.segments[0].base_offset:
        return 0
    return log.segments[log.segments.index_of(offset)].base_offset
