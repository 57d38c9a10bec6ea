"""One partition's log: its content, append, and roll. Kafka's ``UnifiedLog``.

A log is a list of segments; the last one, the active, is appended to. The log assigns
offsets: a producer's batch is checked as Kafka checks it, gets its base offset and
leader epoch in front, and goes to the file in one gathering write. Every other
operation (reading, flushing, cutting, compacting) is a function of a log, in files that
import this one.

All is synchronous and single-threaded. An append that fails leaves the log as it was. A
flush that fails takes the log out of service, since the content of the disk is then
unknown (Kafka takes the whole log directory offline). The log can be read; a restart
recovers it, or mending if the disk was full. A log that is closed, because the broker
stops or the partition was deleted, refuses every call.

Its end for readers (the high watermark) belongs to the partition, and is handed in.
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
    """The place of an appended batch; ``log_append_time_ms`` is -1 under CreateTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Log:
    """The log of one partition.

    ``log_start_offset`` and ``recovery_point`` are at most ``log_end_offset``; below
    the recovery point everything is durable. Cost: ``append`` one write.
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
        # Its end when all of it was left on the disk as an orderly stop leaves it.
        self.settled_offset = -1
        # The offset before which producers were frozen, if they are.
        self.frozen_at = 0
        # Below it the log was compacted before.
        self.cleaner_offset = 0
        # The directory is marked: offsets may be missing between segments (swap.py).
        self.has_gaps = False
        self.flushed_ms = now_ms
        # Why nothing is done with it any more.
        self.closed: str | None = None
        # The log in another directory that has taken its place.
        self.successor: Log | None = None
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Take new settings; a segment keeps the index settings it began with."""
        self.config = config
        # Whether every valid batch is stored as it comes.
        self._keeps_batches = keeps_batches(config)
        # Whether appends ever have to be flushed before they are answered.
        self.flushes = config.flushes

    @property
    def name(self) -> str:
        """Return the partition's name, as Kafka writes it: topic-index."""
        return self.directory.rpartition("/")[2]

    @property
    def home(self) -> str:
        """Return the directory of ``log.dirs`` that the log is in."""
        return self.directory.rpartition("/")[0]

    def close(self, reason: str) -> None:
        """Refuse every further call with ``reason``.

        Slices handed out before stay readable.
        """
        self.storage.close(reason)
        self.closed = self.storage.closed
        self.durability.close(reason)

    def moved(self, directory: str) -> None:
        """Go on in a directory that was renamed, while no call of its own runs."""
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
        """Validate a producer's batch, and make of it what `append` stores, in steps.

        A few bytes may unpack to millions of records. Raises `KafkaError`.
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

        ``records`` is the Produce request's field: one batch of magic 2; ``prepared``
        what `prepare` made of it, if that was done before. A batch that an idempotent
        producer sent before is answered as it was then; ``guard`` is needed by one that
        begins a transaction. Raises `KafkaError`; the log is then as before.
        """
        if self.durability.out_of_service:
            # Not even a repeated batch is confirmed: it may not have reached the disk.
            self.durability.check_in_service()
        config = self.config
        if prepared is not None:
            fields = HEADER.unpack_from(prepared)
        else:
            fields = check_produced(records, config.max_message_bytes)
            prepared = records
            _, _, _, _, _, attributes, _, base_ms, largest_ms, _, _, _, count = fields
            # The form of small batches.
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
        # Without the constructor that NamedTuple generates.
        return _NEW(Appended, (offset, last_offset, time_ms, self.log_start_offset))

    def append_of_coordinator(
        self,
        batch: bytes,
        leader_epoch: int,
        now_ms: int,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Append a batch that this broker made for a transaction, as the leader.

        It is a marker, or offsets that the transaction commits. Raises `KafkaError`;
        the log is then as before.
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
        """Keep what a batch that was just written means for its producer."""
        aborted = self.producers.replay(header, marker)
        if aborted is not None:
            self.segments.active.aborted.add(aborted)

    def append_as_follower(self, records: Buffer, now_ms: int) -> Appended | None:
        """Append batches that a leader assigned offsets to; None if there is none.

        A batch that is not wholly there is left out: the next fetch brings it. Raises
        CORRUPT_MESSAGE, or UNKNOWN_SERVER_ERROR for offsets below the log's end; whole
        batches before the fault stay.
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
            # A follower may append behind a gap, which goes into the new segment. A gap
            # between segments means a loss of power (recovery.py).
            fits = last_offset - self.log_end_offset <= RELATIVE_MAX
            self.roll(now_ms, self.log_end_offset if fits else offset)
            active = self.segments.active
        try:
            active.append(offset, last_offset, max_timestamp, pieces, size)
        except OSError as error:
            raise self.storage.failure(self.directory, error) from error
        # Only now: of an epoch without a record a follower would ask for ever.
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        self.log_end_offset = last_offset + 1

    def _make_writable(self, size: int) -> None:
        """Refuse what no segment holds; cut off what stands behind the end."""
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

    # ---- what it holds ----

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to ``epoch``, and where it ended."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def stable_below(self, high_watermark: int) -> int:
        """Return the last stable offset: every transaction below it has ended."""
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
        """End the active segment; begin a new one at ``offset``, by default the end.

        An empty one is replaced if it begins elsewhere.
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
        """Write the producers as they are before ``offset``, or have that put off.

        Without it a recovery reads on from the one before: whatever is in the segments
        need not be in snapshots. Where one is put off already, that will do.
        """
        if len(self.producers) <= PRODUCERS_PER_STEP:
            return write_snapshot(self.storage, self.directory, offset, self.producers)
        if self.producers.freeze():
            self.frozen_at = offset
        return None

    def begin(self, begun: Segment, snapshot: str | None) -> None:
        """Go on in a new segment; ``snapshot`` is the path of the producers' there."""
        ended = self.segments.active
        self.segments.add(begun)
        self.durability.rolled(ended, snapshot)

    def new_segment(self, offset: int, now_ms: int) -> Segment:
        """Create the files of a segment, which is not part of the log yet.

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
        """Return the offset below which everything is durable."""
        return self.durability.recovery_point

    def check(self) -> None:
        """Assert the invariants of the log and its parts; reads every header."""
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
