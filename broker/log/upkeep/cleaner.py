"""Compaction: of each key the last record stays. Kafka's ``Cleaner`` (KIP-58, KIP-534).

Two passes. The first reads the part of the log not compacted yet (from
``cleaner_offset`` on, never the active segment) and notes each key's last offset. The
second copies all segments up to there, a few into one, without the records that a later
one replaced. A tombstone (null value) is kept for ``delete.retention.ms`` after the
first compaction that met it, so that a consumer on its way sees it: its batch carries
the hour of its removal in the base timestamp field (the delete horizon).

A batch that keeps all its records is copied as it is. Else it is built anew with its
offsets, producer fields and codec; one that lost everything stays as an empty header
if it is its producer's last, for the sake of the sequence numbers. Control records
stay.

Work is cut into steps of one batch: `compaction` is a generator, so that whoever drives
it can do something else in between. The log may grow, roll and lose its oldest segments
meanwhile; a segment being replaced that went away ends the work without harm.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from broker.errors import KafkaError
from broker.log.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    BatchHeader,
    parse_header,
)
from broker.log.records import Record, build_batch, read_records
from broker.log.segment import Segment
from broker.log.swap import Swap

if TYPE_CHECKING:
    from broker.log.log import Log

# Bounds the memory of a pass, as log.cleaner.dedupe.buffer.size does in Kafka.
KEYS_MAX: Final = 1_000_000
_KEY_BYTES: Final = 32
_INDEX_SPAN_MAX: Final = 2**31 - 1


def dirty_ratio(log: Log, now_ms: int, up_to_offset: int) -> float:
    """Return the share of bytes not compacted yet in what could be compacted."""
    end = cleanable_end(log, now_ms, up_to_offset)
    clean = dirty = 0
    for segment in log.segments:
        if segment.base_offset >= end:
            break
        if segment.base_offset < log.cleaner_offset:
            clean += segment.size
        else:
            dirty += segment.size
    return dirty / (clean + dirty) if dirty else 0.0


def compaction_due(log: Log, now_ms: int, up_to_offset: int) -> bool:
    """Tell whether min.cleanable.dirty.ratio or max.compaction.lag.ms asks for it."""
    config = log.config
    if not config.compacts:
        return False
    ratio = dirty_ratio(log, now_ms, up_to_offset)
    if ratio > config.min_cleanable_dirty_ratio:
        return True
    oldest = log.segments[log.segments.index_of(log.cleaner_offset)]
    first_ms = oldest.first_timestamp
    return (
        ratio > 0
        and first_ms is not None
        and now_ms - first_ms > config.max_compaction_lag_ms
    )


def cleanable_end(log: Log, now_ms: int, up_to_offset: int) -> int:
    """Return the offset before which segments may be compacted."""
    lag_ms = log.config.min_compaction_lag_ms
    for number, segment in enumerate(log.segments):
        end = log.segments.end_of(number, log.log_end_offset)
        too_young = lag_ms > 0 and segment.max_timestamp > now_ms - lag_ms
        if segment is log.segments.active or end > up_to_offset or too_young:
            return segment.base_offset
    raise AssertionError("the active segment ends the loop")


def compact(log: Log, now_ms: int, up_to_offset: int) -> None:
    """Compact what may be, now; see `compaction`."""
    for _ in compaction(log, now_ms, up_to_offset):
        pass


def compaction(
    log: Log, now_ms: int, up_to_offset: int, keys_max: int = KEYS_MAX
) -> Iterator[None]:
    """Compact the ended segments below ``up_to_offset``, step by step.

    Raises KAFKA_STORAGE_ERROR; before the last rename of a segment the log is then as
    it was, after it out of service.
    """
    end = cleanable_end(log, now_ms, up_to_offset)
    start = max(log.cleaner_offset, log.segments[0].base_offset)
    if start >= end:
        return
    generation = log.durability.generation
    with closing(_passes(log, start, end, now_ms, keys_max)) as passes:
        for _ in passes:
            yield
            if log.durability.generation != generation:
                # The log was truncated: what was noted of it is not true any more.
                return


def _passes(
    log: Log, start: int, end: int, now_ms: int, keys_max: int
) -> Generator[None, None, None]:
    offsets = _LastOffsets(keys_max)
    yield from offsets.read(log, start, end)
    if not offsets.end:
        return
    work = _Copy(log, offsets, now_ms)
    for group in _groups(log, offsets.end):
        yield from work.rewrite(group)
    log.cleaner_offset = max(log.cleaner_offset, offsets.end)


class _LastOffsets:
    """The last offset of each key in a range of the log; long keys by their hash."""

    def __init__(self, keys_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        # The map speaks for offsets below this one.
        self.end = 0

    def read(self, log: Log, start: int, end: int) -> Iterator[None]:
        """Take in the batches from ``start`` to ``end``, or until the map is full."""
        for segment in list(log.segments):
            if segment.base_offset >= end:
                break
            place = segment.locate(start) if log.segments.holds(segment) else None
            if place is None:
                continue
            for position, header in segment.headers(place[0]):
                for record in _records(segment, position, header) or ():
                    if record.key is not None:
                        self._offsets[_hashed(record.key)] = record.offset
                self.end = header.last_offset + 1
                if len(self._offsets) >= self._keys_max:
                    return
                yield
        self.end = end

    def is_last(self, record: Record) -> bool:
        """Tell whether no later record of the same key is known."""
        if record.key is None:
            return False
        return record.offset >= self._offsets.get(_hashed(record.key), -1)


def _hashed(key: bytes) -> bytes:
    if len(key) <= _KEY_BYTES:
        return key
    return blake2b(key, digest_size=_KEY_BYTES).digest()


def _records(
    segment: Segment, position: int, header: BatchHeader
) -> list[Record] | None:
    """Return a batch's records; None if it is control records, or cannot be read.

    What cannot be unpacked within the limits is left alone: keys unknown, it stays.
    """
    if header.attributes & CONTROL or not header.record_count:
        return None
    try:
        return read_records(header, segment.file.read(position, header.size))
    except KafkaError:
        return None


def _groups(log: Log, end: int) -> Iterator[list[Segment]]:
    """Put neighbours together whose bytes fit into one segment."""
    group: list[Segment] = []
    size = 0
    for number, segment in enumerate(list(log.segments)):
        if segment.base_offset >= end or segment is log.segments.active:
            break
        next_base = log.segments.end_of(number, log.log_end_offset)
        if group and (
            size + segment.size > log.config.segment_bytes
            or next_base - group[0].base_offset > _INDEX_SPAN_MAX
        ):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group


class _Copy:
    """Copies groups of segments without what is replaced or expired."""

    def __init__(self, log: Log, offsets: _LastOffsets, now_ms: int) -> None:
        self._log = log
        self._offsets = offsets
        self._now_ms = now_ms
        self._last_of_producers = log.producers.last_offsets()

    def rewrite(self, group: list[Segment]) -> Iterator[None]:
        """Put one compacted segment in the place of a group."""
        swap = Swap(self._log, group, self._now_ms)
        try:
            for segment in group:
                for position, header in segment.headers():
                    kept = self._filtered(segment, position, header)
                    if kept is not None:
                        swap.add(*kept)
                    yield
            swap.commit()
        finally:
            swap.abandon_unless_committed()

    def _filtered(
        self, segment: Segment, position: int, header: BatchHeader
    ) -> tuple[BatchHeader, bytes] | None:
        """Return what stays of a batch, None if nothing does."""
        batch = segment.file.read(position, header.size)
        if header.record_count == 0:
            return self._empty(header)
        records = _records(segment, position, header)
        if records is None:
            return header, batch
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        expired = has_horizon and self._now_ms >= header.base_timestamp
        kept = [record for record in records if self._stays(record, expired)]
        if not kept:
            return self._empty(header)
        sets_horizon = not has_horizon and any(r.value is None for r in kept)
        if len(kept) == len(records) and not sets_horizon:
            return header, batch
        return self._built(header, kept, sets_horizon)

    def _stays(self, record: Record, expired: bool) -> bool:
        if record.offset >= self._offsets.end:
            return True
        return self._offsets.is_last(record) and not (expired and record.value is None)

    def _built(
        self, header: BatchHeader, kept: list[Record], sets_horizon: bool
    ) -> tuple[BatchHeader, bytes]:
        """Build a batch of the records that stay, under the old one's header."""
        if not header.attributes & LOG_APPEND_TIME:
            header = header._replace(max_timestamp=max(r.timestamp for r in kept))
        if sets_horizon:
            header = header._replace(
                attributes=header.attributes | DELETE_HORIZON,
                base_timestamp=self._now_ms + self._log.config.delete_retention_ms,
            )
        records = ((each.offset, each.timestamp, each.body) for each in kept)
        batch = build_batch(header, records)
        return parse_header(batch), batch

    def _empty(self, header: BatchHeader) -> tuple[BatchHeader, bytes] | None:
        """Keep the numbers of a producer's last batch, and no record."""
        if header.last_offset not in self._last_of_producers:
            return None
        plain = header._replace(attributes=header.attributes & ~CODEC_MASK)
        batch = build_batch(plain, ())
        return parse_header(batch), batch
