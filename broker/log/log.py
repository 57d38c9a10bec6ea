"""The log of a partition: its content, append, and roll. Kafka's ``UnifiedLog``.

A log is a list of segments; appends go to the last one, the active segment. The log
assigns offsets: a producer's batch is validated as in Kafka, and gets its base offset
and leader epoch in its header. One gathering write then writes it to the file. All
other operations (reading, flushing, truncating, compacting) are functions of a log, in
modules that import this one.

The log is synchronous and single-threaded. A failed append leaves the log unchanged. A
failed flush takes the log out of service, since the content of the disk is then unknown
(Kafka takes the whole log directory offline). The log can still be read. A restart
recovers it; if the disk was full, mending is enough. A closed log refuses every call;
it is closed when the broker stops or the partition is deleted.

The end for readers (the high watermark) belongs to the partition; callers pass it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.disk.closable_storage import ClosableStorage
from broker.disk.pending_removals import PendingRemovals
from broker.log.durability import Durability
from broker.log.epochs import LeaderEpochs
from broker.log.producers import (
    PRODUCERS_PER_STEP,
    BatchMetadata,
    Producers,
    write_snapshot,
)
from broker.log.rewriting import keeps_batches, rewriting
from broker.log.segments.log_config import LogConfig
from broker.log.segments.segment import RELATIVE_MAX, Segment
from broker.log.segments.segment_list import Segments
from broker.log.steps import Steps, run
from broker.log.transactions import Marker, VerificationGuard, marker_of
from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import (
    CONTROL,
    HEADER,
    PREFIX,
    TRANSACTIONAL,
    BatchHeader,
    check_produced,
    parse_header,
    split_batches,
)
from broker.protocol.records.validation import is_one_record
from broker.protocol.wire.hot import EpochEnd

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_LEADER_EPOCH_END: Final = PREFIX.size
_NEW: Final = tuple.__new__


class Appended(NamedTuple):
    """Offsets of an appended batch; ``log_append_time_ms`` is -1 under CreateTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Log:
    """The log of one partition.

    ``log_start_offset`` and ``recovery_point`` are at most ``log_end_offset``. All data
    below the recovery point is durable. Cost: one write per ``append``.
    """

    __slots__ = (
        "_keeps_batches",
        "cleaner_offset",
        "closed",
        "config",
        "directory",
        "doomed",
        "durability",
        "epochs",
        "flushed_ms",
        "flushes",
        "frozen_at",
        "has_gaps",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "segments",
        "settled_offset",
        "storage",
        "successor",
    )

    def __init__(
        self,
        *,
        directory: str,
        config: LogConfig,
        storage: ClosableStorage,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: Producers,
        log_start_offset: int,
        log_end_offset: int,
        durability: Durability,
        doomed: PendingRemovals,
        now_ms: int,
    ) -> None:
        self.directory = directory
        self.storage = storage
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.durability = durability
        # Collects files for later removal.
        self.doomed = doomed
        # The log's end at the last `settle`, as for an orderly stop.
        self.settled_offset = -1
        # The offset of the frozen producer state, if there is one.
        self.frozen_at = 0
        # The log has been compacted below this offset.
        self.cleaner_offset = 0
        # The directory is marked: offsets may be missing between segments (swap.py).
        self.has_gaps = False
        self.flushed_ms = now_ms
        # The reason why the log is closed; None if it is open.
        self.closed: str | None = None
        # The log in another directory that has taken its place.
        self.successor: Log | None = None
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Apply new settings; a segment keeps the index settings of its creation."""
        self.config = config
        # Whether every valid batch is stored unchanged.
        self._keeps_batches = keeps_batches(config)
        # Whether appends may have to be flushed before they are acknowledged.
        self.flushes = config.flushes

    @property
    def name(self) -> str:
        """Return the partition's name in Kafka's form: topic-index."""
        return self.directory.rpartition("/")[2]

    @property
    def home(self) -> str:
        """Return the directory of ``log.dirs`` that contains the log."""
        return self.directory.rpartition("/")[0]

    def close(self, reason: str) -> None:
        """Refuse every further call with ``reason``.

        Slices returned earlier stay readable.
        """
        self.storage.close(reason)
        self.closed = self.storage.closed
        self.durability.close(reason)

    def moved(self, directory: str) -> None:
        """Continue in a renamed directory; no call of the log may be in progress."""
        self.directory = directory
        self.epochs.moved(directory)
        self.durability.moved(directory)
        for segment in self.segments:
            segment.moved(directory)

    def check_open(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is closed."""
        self.storage.check_open()

    # ---- append ----

    def prepare(self, records: Buffer, now_ms: int) -> Steps[Buffer]:
        """Validate a producer's batch and return the batch to store, in steps.

        Steps are needed because a few bytes may unpack to millions of records. Raises
        `KafkaError`.
        """
        check_produced(records, self.config.max_message_bytes)
        return (yield from rewriting(records, self.config, now_ms, self.name))

    def append(
        self,
        records: Buffer,
        leader_epoch: int,
        now_ms: int,
        prepared: Buffer | None = None,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append a producer's batch, as the leader.

        ``records`` is the Produce request's field: one batch of magic 2. ``prepared``
        is the result of `prepare`, if it was called before. A batch that an idempotent
        producer repeats gets its first result again. A batch that begins a transaction
        needs a ``guard``. Raises `KafkaError`; the log is then unchanged.
        """
        if self.durability.out_of_service:
            # Also repeated batches are refused: they may not have reached the disk.
            self.durability.check_in_service()
        config = self.config
        if prepared is not None:
            fields = HEADER.unpack_from(prepared)
        else:
            fields = check_produced(records, config.max_message_bytes)
            prepared = records
            _, _, _, _, _, attributes, _, base_ms, largest_ms, _, _, _, count = fields
            # Only a valid batch of one record is stored without a full validation.
            if (
                count != 1
                or attributes & ~TRANSACTIONAL
                or not base_ms == largest_ms >= 0
                or largest_ms - now_ms > config.message_timestamp_after_max_ms
                or not self._keeps_batches
                or not is_one_record(records)
            ):
                prepared = run(rewriting(records, config, now_ms, self.name))
                fields = HEADER.unpack_from(prepared)
        delta, producer_id = fields[6], fields[9]
        if producer_id >= 0:
            sequence = fields[11]
            last_sequence = (sequence + delta) & _SEQUENCE_MASK
            is_transactional = fields[5] & TRANSACTIONAL != 0
            producers = self.producers
            known = producers.check(
                producer_id,
                fields[10],
                sequence,
                last_sequence,
                is_transactional,
                guard,
            )
            if known is not None:
                return self._answer_again(known)
        offset = self.log_end_offset
        last_offset = offset + delta
        max_timestamp = fields[8]
        pieces = (
            PREFIX.pack(offset, fields[1], leader_epoch),
            memoryview(prepared)[_LEADER_EPOCH_END:],
        )
        size = len(prepared)
        self._write(
            offset, last_offset, max_timestamp, pieces, size, leader_epoch, now_ms
        )
        if producer_id >= 0:
            producers.append(
                producer_id,
                fields[10],
                BatchMetadata(
                    sequence, last_sequence, offset, last_offset, max_timestamp
                ),
                is_transactional,
            )
        stamped = config.message_timestamp_type == "LogAppendTime"
        time_ms = max_timestamp if stamped else -1
        # `tuple.__new__`, without the slower constructor of the NamedTuple.
        return _NEW(Appended, (offset, last_offset, time_ms, self.log_start_offset))

    def append_of_coordinator(
        self,
        batch: bytes,
        leader_epoch: int,
        now_ms: int,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Append a batch that this broker created for a transaction, as the leader.

        The batch is a marker, or contains offsets that the transaction commits. Raises
        `KafkaError`; the log is then unchanged.
        """
        self.durability.check_in_service()
        made = parse_header(batch)
        marker = marker_of(made, batch) if made.attributes & CONTROL else None
        self.producers.check_coordinators(made, marker, guard, transaction_version)
        header = made._replace(base_offset=self.log_end_offset)
        pieces = (
            PREFIX.pack(header.base_offset, made.batch_length, leader_epoch),
            memoryview(batch)[_LEADER_EPOCH_END:],
        )
        self._write(
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            pieces,
            header.size,
            leader_epoch,
            now_ms,
        )
        self._follow(header, marker)
        start = self.log_start_offset
        return Appended(header.base_offset, header.last_offset, -1, start)

    def _follow(self, header: BatchHeader, marker: Marker | None) -> None:
        """Update the producer state for a batch that was just written."""
        aborted = self.producers.replay(header, marker)
        if aborted is not None:
            self.segments.active.aborted.add(aborted)

    def append_as_follower(self, records: Buffer, now_ms: int) -> Appended | None:
        """Append batches fetched from a leader; return None if there are none.

        An incomplete last batch is ignored; the next fetch returns it again. Raises
        CORRUPT_MESSAGE, or UNKNOWN_SERVER_ERROR for offsets below the log's end; valid
        batches before the error are kept.
        """
        self.durability.check_in_service()
        first = None
        for header, batch in split_batches(records):
            if header.base_offset < self.log_end_offset:
                raise KafkaError(
                    ErrorCode.unknown_server_error,
                    f"offset {header.base_offset} from the leader, the log ends at "
                    f"{self.log_end_offset}",
                )
            is_control = header.attributes & CONTROL
            marker = marker_of(header, batch) if is_control else None
            self._write(
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                (batch,),
                header.size,
                header.partition_leader_epoch,
                now_ms,
            )
            self._follow(header, marker)
            first = header.base_offset if first is None else first
        if first is None:
            return None
        return Appended(first, self.log_end_offset - 1, -1, self.log_start_offset)

    def _write(
        self,
        offset: int,
        last_offset: int,
        max_timestamp: int,
        pieces: tuple[Buffer, ...],
        size: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        config = self.config
        active = self.segments.active
        if active.torn or self.durability.out_of_service or size > config.segment_bytes:
            self._make_writable(size)
        if not active.admits(size, last_offset, max_timestamp, now_ms, config):
            # A follower may append after a gap. The new segment begins before the gap,
            # since a gap between segments means lost batches (recovery.py).
            fits = last_offset - self.log_end_offset <= RELATIVE_MAX
            self.roll(now_ms, self.log_end_offset if fits else offset)
            active = self.segments.active
        try:
            active.append(offset, last_offset, max_timestamp, pieces, size)
        except OSError as error:
            raise self.storage.failure(self.directory, error) from error
        # After the write: a follower would request an epoch without records for ever.
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        self.log_end_offset = last_offset + 1

    def _make_writable(self, size: int) -> None:
        """Refuse a batch above segment.bytes; cut off bytes after the end."""
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"batch of {size} bytes, segment.bytes is {self.config.segment_bytes}",
            )
        self.durability.check_in_service()
        try:
            self.segments.active.cut()
        except OSError as error:
            raise self.storage.failure(self.directory, error) from error

    def _answer_again(self, known: BatchMetadata) -> Appended:
        stamped = self.config.message_timestamp_type == "LogAppendTime"
        return Appended(
            known.first_offset,
            known.last_offset,
            known.timestamp if stamped else -1,
            self.log_start_offset,
        )

    # ---- content ----

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to ``epoch``, and its end offset."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def stable_below(self, high_watermark: int) -> int:
        """Return the last stable offset, below which all transactions have ended."""
        unstable = self.producers.unstable
        if not unstable:
            return high_watermark
        start = min(self.log_start_offset, high_watermark)
        return max(unstable.stable_below(high_watermark), start)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments, without indexes."""
        return self.segments.size_bytes()

    # ---- roll ----

    def roll(self, now_ms: int, offset: int | None = None) -> None:
        """End the active segment; begin a new one at ``offset`` (default: log end).

        An empty active segment with another base offset is replaced.
        """
        self.check_open()
        ended = self.segments.active
        offset = self.log_end_offset if offset is None else offset
        if not ended.size and ended.base_offset == offset:
            return
        try:
            ended.cut()
            ended.write_indexes()
            ended.release_indexes()
            snapshot = self._snapshot(offset)
            begun = self.new_segment(offset, now_ms)
        except OSError as error:
            raise self.storage.failure(self.directory, error) from error
        self.begin(begun, snapshot)

    def _snapshot(self, offset: int) -> str | None:
        """Write the snapshot of producers at ``offset``, or defer it if they are many.

        Recovery does not need every snapshot: it replays the batches after an earlier
        one. While a deferred snapshot is pending, no other one is begun.
        """
        if len(self.producers) <= PRODUCERS_PER_STEP:
            return write_snapshot(self.storage, self.directory, offset, self.producers)
        if self.producers.freeze():
            self.frozen_at = offset
        return None

    def begin(self, begun: Segment, snapshot: str | None) -> None:
        """Make a new segment active.

        ``snapshot`` is the path of its producer snapshot.
        """
        ended = self.segments.active
        self.segments.add(begun)
        self.durability.rolled(ended, snapshot)

    def new_segment(self, offset: int, now_ms: int) -> Segment:
        """Create the files of a segment without adding it to the log.

        Raises ``OSError``.
        """
        return Segment(
            self.storage,
            self.directory,
            offset,
            config=self.config,
            created_ms=now_ms,
            create=True,
        )

    @property
    def recovery_point(self) -> int:
        """Return the offset below which all data is durable."""
        return self.durability.recovery_point

    def check(self) -> None:
        """Assert the invariants of the log and its parts; read every header."""
        self.segments.check()
        self.epochs.check()
        self.producers.check_invariants()
        assert self.log_start_offset <= self.log_end_offset
        assert self.recovery_point <= self.log_end_offset
        last = -1
        for segment in self.segments:
            for _, header in segment.headers():
                assert header.base_offset > last, (segment, header, last)
                last = header.last_offset
        assert last < self.log_end_offset, (last, self.log_end_offset)
