"""Compaction: keep the last record of each key. Kafka's ``Cleaner`` (KIP-58, KIP-534).

Compaction has two passes. The first reads the part of the log not compacted yet (from
``cleaner_offset`` on, never the active segment) and records each key's last offset. The
second copies all segments up to there, several into one, without records that a later
record replaced. A tombstone (null value) is kept for ``delete.retention.ms`` after the
first compaction that read it, so that lagging consumers can read it. The base timestamp
field of its batch contains the time of its removal (the delete horizon).

A batch that keeps all its records is copied unchanged. Otherwise it is rebuilt with its
offsets, producer fields and codec. An empty batch is kept as a header if it is its
producer's last, for the sequence numbers. Records of aborted transactions are removed.
Control records are kept; Kafka removes them some time after the records of their
transaction.

Work is split into steps: `compaction` is a generator, so its driver can do other work
in between. The log may grow, roll and lose its oldest segments meanwhile. If a segment
of the group disappears, compaction ends and the log is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Final, NamedTuple

from broker.log.log import Log
from broker.log.operation import in_steps, operation
from broker.log.segments.log_config import LONG_MAX
from broker.log.segments.segment import Segment
from broker.log.steps import Steps, watched
from broker.log.transactions import AbortedBatches
from broker.log.upkeep.swap import Swap
from broker.protocol.errors import KafkaError
from broker.protocol.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    BatchHeader,
    parse_header,
)
from broker.protocol.records.batch_records import (
    BatchBuilder,
    Record,
    build_batch,
    records_in_steps,
)

# Bound on the memory of a pass, like log.cleaner.dedupe.buffer.size in Kafka.
KEYS_MAX: Final = 1_000_000
_KEY_BYTES: Final = 32
_INDEX_SPAN_MAX: Final = 2**31 - 1


def dirty_ratio(log: Log, now_ms: int, up_to_offset: int) -> float:
    """Return the share of dirty bytes in the compactable part of a log."""
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


@operation
def compaction_due(log: Log, now_ms: int, up_to_offset: int) -> bool:
    """Return whether min.cleanable.dirty.ratio or max.compaction.lag.ms is exceeded."""
    config = log.config
    if not config.compacts:
        return False
    ratio = dirty_ratio(log, now_ms, up_to_offset)
    if ratio > config.min_cleanable_dirty_ratio:
        return True
    if ratio == 0 or config.max_compaction_lag_ms == LONG_MAX:
        return False
    first_ms = log.segments[log.segments.index_of(log.cleaner_offset)].first_time_ms()
    return first_ms is not None and now_ms - first_ms > config.max_compaction_lag_ms


def cleanable_end(log: Log, now_ms: int, up_to_offset: int) -> int:
    """Return the offset before which segments may be compacted."""
    lag_ms = log.config.min_compaction_lag_ms
    for number, segment in enumerate(log.segments):
        end = log.segments.end_of(number, log.log_end_offset)
        too_young = lag_ms > 0 and segment.max_timestamp > now_ms - lag_ms
        if segment is log.segments.active or end > up_to_offset or too_young:
            return segment.base_offset
    raise AssertionError("the active segment ends the loop")


@in_steps
def compaction(
    log: Log,
    now_ms: int,
    up_to_offset: int,
    keys_max: int = KEYS_MAX,
    moved: Callable[[int], None] = lambda size: None,
) -> Steps[None]:
    """Compact the ended segments below ``up_to_offset``, the last stable offset.

    ``moved`` receives the bytes read and written. Raises KAFKA_STORAGE_ERROR: before
    the commit of a segment the log is then unchanged, afterwards it is out of service.
    Ends early if the log is truncated.
    """
    end = cleanable_end(log, now_ms, up_to_offset)
    start = max(log.cleaner_offset, log.segments[0].base_offset)
    if start >= end:
        return
    generation = log.durability.generation
    yield from watched(
        _passes(log, start, end, now_ms, keys_max, moved),
        # After a change of generation, the recorded offsets are invalid.
        lambda: log.durability.generation == generation,
    )


def _passes(
    log: Log,
    start: int,
    end: int,
    now_ms: int,
    keys_max: int,
    moved: Callable[[int], None],
) -> Steps[None]:
    aborted = AbortedBatches()
    yield from aborted.read(log.segments)
    offsets = _LastOffsets(keys_max, moved, aborted)
    yield from offsets.read(log, start, end)
    if not offsets.end:
        return
    last_of_producers = yield from log.producers.last_offsets()
    work = _Copy(log, offsets, last_of_producers, now_ms, moved, aborted)
    for group in _groups(log, offsets.end):
        yield from work.rewrite(group)
    log.cleaner_offset = max(log.cleaner_offset, offsets.end)


class _LastOffsets:
    """The last offset of each key in a range of the log; long keys by their hash."""

    def __init__(
        self, keys_max: int, moved: Callable[[int], None], aborted: AbortedBatches
    ) -> None:
        self._aborted = aborted
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        self._moved = moved
        # The map covers offsets below this one.
        self.end = 0

    def read(self, log: Log, start: int, end: int) -> Steps[None]:
        """Read the batches from ``start`` to ``end``, or until the map is full."""
        for segment in list(log.segments):
            if segment.base_offset >= end:
                break
            found = segment.locate(start) if log.segments.holds(segment) else None
            if found is None:
                continue
            first, _ = found
            for position, header in segment.headers(first):
                self._moved(header.size)
                yield from self._take_in(segment, position, header)
                self.end = header.last_offset + 1
                if len(self._offsets) >= self._keys_max:
                    return
                yield None
        self.end = end

    def _take_in(
        self, segment: Segment, position: int, header: BatchHeader
    ) -> Steps[None]:
        """Record the keys of a batch; ignore a batch that cannot be read completely."""
        if _is_left_alone(header) or header in self._aborted:
            return
        found: dict[bytes, int] = {}
        batch = segment.file.read(position, header.size)
        with suppress(KafkaError):
            for record in records_in_steps(header, batch):
                if record is None:
                    yield None
                elif record.key is not None:
                    found[_hashed(record.key)] = record.offset
            self._offsets.update(found)

    def is_last(self, record: Record) -> bool:
        """Return whether no later record of the same key is known."""
        if record.key is None:
            return False
        return record.offset >= self._offsets.get(_hashed(record.key), -1)


def _hashed(key: bytes) -> bytes:
    if len(key) <= _KEY_BYTES:
        return key
    return blake2b(key, digest_size=_KEY_BYTES).digest()


def _is_left_alone(header: BatchHeader) -> bool:
    return bool(header.attributes & CONTROL) or not header.record_count


def _groups(log: Log, end: int) -> Iterator[list[Segment]]:
    """Group neighbouring segments whose bytes fit into one segment."""
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


class _Kept(NamedTuple):
    """The kept part of a batch."""

    records: int
    tombstones: int
    max_timestamp: int
    is_whole: bool


class _Copy:
    """Copier of groups of segments, without replaced or expired records."""

    def __init__(
        self,
        log: Log,
        offsets: _LastOffsets,
        last_of_producers: frozenset[int],
        now_ms: int,
        moved: Callable[[int], None],
        aborted: AbortedBatches,
    ) -> None:
        self._aborted = aborted
        self._log = log
        self._offsets = offsets
        self._now_ms = now_ms
        self._moved = moved
        self._last_of_producers = last_of_producers

    def rewrite(self, group: list[Segment]) -> Steps[None]:
        """Replace a group by one compacted segment."""
        swap = Swap(self._log, group, self._now_ms)
        try:
            for segment in group:
                for position, header in segment.headers():
                    self._moved(header.size)
                    batch = segment.file.read(position, header.size)
                    kept = yield from self._filtered(header, batch)
                    if kept is not None:
                        self._moved(kept[0].size)
                        swap.add(*kept)
                    yield None
            yield from swap.commit()
        finally:
            swap.abandon_unless_committed()

    def _filtered(
        self, header: BatchHeader, batch: bytes
    ) -> Steps[tuple[BatchHeader, bytes] | None]:
        """Return the kept part of a batch; None if it is empty.

        A batch that cannot be unpacked within the limits is kept, as its keys are
        unknown.
        """
        if header.record_count == 0:
            return self._empty(header)
        if _is_left_alone(header):
            return header, batch
        if header in self._aborted and header.last_offset < self._offsets.end:
            return self._empty(header)
        try:
            kept = yield from self._scan(header, batch)
        except KafkaError:
            return header, batch
        if not kept.records:
            return self._empty(header)
        sets_horizon = bool(kept.tombstones and not header.attributes & DELETE_HORIZON)
        if (
            kept.is_whole
            and not sets_horizon
            and kept.max_timestamp == header.max_timestamp
        ):
            return header, batch
        return (yield from self._built(header, batch, kept, sets_horizon))

    def _scan(self, header: BatchHeader, batch: bytes) -> Steps[_Kept]:
        records = tombstones = number = 0
        max_timestamp = -LONG_MAX
        for record in records_in_steps(header, batch):
            if record is None:
                yield None
                continue
            number += 1
            if self._stays(record, header):
                records += 1
                tombstones += record.value is None
                max_timestamp = max(max_timestamp, record.timestamp)
        return _Kept(records, tombstones, max_timestamp, records == number)

    def _stays(self, record: Record, header: BatchHeader) -> bool:
        if record.offset >= self._offsets.end:
            return True
        has_expired = (
            record.value is None
            and header.attributes & DELETE_HORIZON
            and self._now_ms >= header.base_timestamp
        )
        return not has_expired and self._offsets.is_last(record)

    def _built(
        self, header: BatchHeader, batch: bytes, kept: _Kept, sets_horizon: bool
    ) -> Steps[tuple[BatchHeader, bytes]]:
        """Build a batch of the kept records, with the header of the old batch."""
        anew = header
        if not header.attributes & LOG_APPEND_TIME:
            anew = anew._replace(max_timestamp=kept.max_timestamp)
        if sets_horizon:
            anew = anew._replace(
                attributes=header.attributes | DELETE_HORIZON,
                base_timestamp=self._now_ms + self._log.config.delete_retention_ms,
            )
        builder = BatchBuilder(anew)
        for record in records_in_steps(header, batch):
            if record is None:
                yield None
            elif self._stays(record, header):
                builder.add(record.offset, record.timestamp, record.body)
        built = builder.build()
        return parse_header(built), built

    def _empty(self, header: BatchHeader) -> tuple[BatchHeader, bytes] | None:
        """Keep only the header of a producer's last batch; None for other batches."""
        if header.last_offset not in self._last_of_producers:
            return None
        plain = header._replace(attributes=header.attributes & ~CODEC_MASK)
        batch = build_batch(plain, ())
        return parse_header(batch), batch
