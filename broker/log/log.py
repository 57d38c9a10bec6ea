"""One partition's log: append, read, roll, flush, truncate. Kafka's ``UnifiedLog``.

A log is a row of segments; the last one, the active, is appended to. Offsets are given
here: what a producer sends is checked as Kafka checks it, gets its base offset and
leader epoch in front, and goes to the file in one gathering write, its records never
copied or parsed. How it is read, searched by time and cut stands in files of their own.

All is synchronous and single-threaded. An append that fails leaves the log as it was. A
flush that fails takes the log out of service, since nobody can know what the disk still
holds (Kafka takes the whole log directory offline); a restart recovers it, and if the
disk was full, so does `mend`.

Where it ends for readers (high watermark, last stable offset) is the partition's
affair, and handed in.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.errors import ErrorCode, KafkaError
from broker.log import cleaner, flushing, mending, reading, times, trimming
from broker.log.batch import HEADER, PREFIX, check_produced, split_batches
from broker.log.config import LogConfig
from broker.log.durability import Durability, FlushJob, storage_error
from broker.log.epochs import LeaderEpochs
from broker.log.producers import BatchMetadata, Producers, write_snapshot
from broker.log.rewriting import needs_rewriting, rewritten
from broker.log.segment import Segment
from broker.log.segments import Segments
from broker.log.storage import Buffer, Storage

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_LEADER_EPOCH_END: Final = PREFIX.size
_NEW: Final = tuple.__new__


class Appended(NamedTuple):
    """Where a batch went; ``log_append_time_ms`` is -1 under CreateTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Log:
    """The log of one partition.

    ``log_start_offset`` and ``recovery_point`` are at most ``log_end_offset``; below
    the recovery point everything is durable. Cost: ``append`` one write; ``read`` no
    I/O at the end of the log, else that of ``Segment.locate``.
    """

    __slots__ = (
        "_config",
        "_rewrites",
        "cleaner_offset",
        "directory",
        "durability",
        "epochs",
        "flushed_ms",
        "flushes",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "segments",
        "storage",
        "torn",
    )

    def __init__(
        self,
        *,
        directory: str,
        config: LogConfig,
        storage: Storage,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: Producers,
        log_start_offset: int,
        log_end_offset: int,
        durability: Durability,
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
        # A failed write may have left bytes behind the active segment's end.
        self.torn = False
        # Below it the log was compacted before.
        self.cleaner_offset = 0
        self.flushed_ms = now_ms
        self.configure(config)

    @staticmethod
    def open(
        directory: str,
        config: LogConfig,
        storage: Storage,
        now_ms: int,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        """Open or create the log of a directory called ``topic-partition``.

        ``clean``: the last stop was orderly, so indexes are believed. Else everything
        from ``recovery_point`` on is read and checked. Raises ``OSError``.
        """
        from broker.log.recovery import open_log

        return open_log(
            directory,
            config,
            storage,
            now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )

    @property
    def config(self) -> LogConfig:
        """Return the settings."""
        return self._config

    def configure(self, config: LogConfig) -> None:
        """Take new settings; a segment keeps the index settings it began with."""
        self._config = config
        self._rewrites = needs_rewriting(config)
        # Whether appends ever have to be flushed before they are answered.
        self.flushes = flushing.is_asked_for(config)

    # ---- append ----

    def append(self, records: Buffer, leader_epoch: int, now_ms: int) -> Appended:
        """Append a producer's batch, as the leader.

        ``records`` is the Produce request's field: one batch of magic 2. A batch that
        an idempotent producer sent before is answered as it was then. Raises
        `KafkaError`; the log is then as before.
        """
        if self.durability.out_of_service:
            # Not even a repeated batch is confirmed: it may not have reached the disk.
            self.durability.check_in_service()
        config = self._config
        fields = check_produced(records, config.max_message_bytes)
        delta, producer_id = fields[6], fields[9]
        if producer_id >= 0:
            sequence = fields[11]
            last_sequence = (sequence + delta) & _SEQUENCE_MASK
            producers = self.producers
            known = producers.check(producer_id, fields[10], sequence, last_sequence)
            if known is not None:
                return self._answer_again(known)
        if self._rewrites or fields[8] - now_ms > config.message_timestamp_after_max_ms:
            records = rewritten(records, config, now_ms)
            fields = HEADER.unpack_from(records)
        offset = self.log_end_offset
        last_offset = offset + delta
        max_timestamp = fields[8]
        pieces = (
            PREFIX.pack(offset, fields[1], leader_epoch),
            memoryview(records)[_LEADER_EPOCH_END:],
        )
        size = len(records)
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
            )
        stamped = config.message_timestamp_type == "LogAppendTime"
        time_ms = max_timestamp if stamped else -1
        # Without the constructor that NamedTuple generates.
        return _NEW(Appended, (offset, last_offset, time_ms, self.log_start_offset))

    def append_as_follower(self, records: Buffer, now_ms: int) -> Appended | None:
        """Append batches that a leader assigned offsets to; None if there is none.

        A batch that is not wholly there is left out: the next fetch brings it. Raises
        CORRUPT_MESSAGE, or UNKNOWN_SERVER_ERROR for offsets below the log's end; whole
        batches before the fault stay.
        """
        first = None
        for header, batch in split_batches(records):
            if header.base_offset < self.log_end_offset:
                raise KafkaError(
                    ErrorCode.unknown_server_error,
                    f"offset {header.base_offset} from the leader, the log ends at "
                    f"{self.log_end_offset}",
                )
            self._write(
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                (batch,),
                header.size,
                header.partition_leader_epoch,
                now_ms,
            )
            self.producers.replay(header)
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
        config = self._config
        if self.torn or self.durability.out_of_service or size > config.segment_bytes:
            self._make_writable(size)
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        active = self.segments.active
        if not active.admits(size, last_offset, max_timestamp, now_ms, config):
            self.roll(now_ms, offset)
            active = self.segments.active
        try:
            active.append(offset, last_offset, max_timestamp, pieces, size)
        except OSError as error:
            self.torn = True
            raise storage_error(self.directory, error) from error
        self.log_end_offset = last_offset + 1

    def _make_writable(self, size: int) -> None:
        """Refuse what no segment holds; cut off what a failed write left behind."""
        if size > self._config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"batch of {size} bytes, segment.bytes is {self._config.segment_bytes}",
            )
        self.durability.check_in_service()
        try:
            if self.torn:
                self.segments.active.cut()
        except OSError as error:
            raise storage_error(self.directory, error) from error
        self.torn = False

    def _answer_again(self, known: BatchMetadata) -> Appended:
        stamped = self._config.message_timestamp_type == "LogAppendTime"
        return Appended(
            known.first_offset,
            known.last_offset,
            known.timestamp if stamped else -1,
            self.log_start_offset,
        )

    # ---- what it holds ----

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end; (-1, -1): unknown."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments, without indexes."""
        return self.segments.size_bytes()

    # ---- roll and flush ----

    def roll(self, now_ms: int, offset: int | None = None) -> None:
        """End the active segment; begin a new one at ``offset``, by default the end.

        An empty one is replaced if it begins elsewhere.
        """
        ended = self.segments.active
        offset = self.log_end_offset if offset is None else offset
        if not ended.size and ended.base_offset == offset:
            return
        try:
            ended.cut()
            ended.write_indexes()
            ended.release_indexes()
            write_snapshot(self.storage, self.directory, offset, self.producers)
            begun = self.new_segment(offset, now_ms)
        except OSError as error:
            raise storage_error(self.directory, error) from error
        self.segments.add(begun)
        self.durability.rolled(ended)
        self.torn = False

    def new_segment(self, offset: int, now_ms: int) -> Segment:
        """Create the files of a segment; it is not part of the log yet."""
        return Segment(
            self.storage,
            self.directory,
            offset,
            config=self._config,
            created_ms=now_ms,
            create=True,
        )

    @property
    def recovery_point(self) -> int:
        """Return the offset below which everything is durable."""
        return self.durability.recovery_point

    def flush_job(self) -> FlushJob | None:
        """Return what a flush has to do, for another thread; None if nothing.

        Report to `flushed` or ``durability.failed``.
        """
        return self.durability.job(self.segments.active, self.log_end_offset)

    def flushed(self, job: FlushJob, now_ms: int) -> None:
        """Note that a job is done; ``now_ms`` begins a new ``flush.ms``."""
        self.durability.done(job)
        self.flushed_ms = now_ms

    # ---- told in files of their own ----

    read = reading.read
    flush_due = flushing.flush_due
    flush = flushing.flush
    flush_ended = flushing.flush_ended
    close = flushing.close
    mend = mending.mend
    truncate_to = trimming.truncate_to
    truncate_fully = trimming.truncate_fully
    retention = trimming.retention
    delete_records_before = trimming.delete_records_before
    compaction = cleaner.compaction
    compaction_due = cleaner.compaction_due
    compact = cleaner.compact
    offset_for_timestamp = times.offset_for_timestamp
    offset_of_max_timestamp = times.offset_of_max_timestamp

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
