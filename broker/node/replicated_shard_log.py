"""Reading and writing of an internal topic for its coordinator.

Writes use `broker.node.replicated_appends`. Reads go to the log's end, not to the high
watermark: a new leader may have acknowledged records whose replication is not confirmed
yet.

The records of an unreadable batch are lost; if the end of the batch is unknown, the
rest of its segment is lost. The batch is logged with its offset, counted and skipped,
since serving groups without some commits is better than serving no groups.

Offsets committed by a transaction are ordinary records in transactional batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from logging import getLogger
from typing import Final, NamedTuple

from broker.cluster.partition import ALL_REPLICAS, Partition
from broker.cluster.replica_manager import ReplicaManager
from broker.log.log import Appended
from broker.log.log_reading import read
from broker.log.transactions import VerificationGuard, marker_of
from broker.node.flush_shell import QueuedFlushes
from broker.node.replicated_appends import ReplicatedAppends
from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    corrupt,
    parse_header,
)
from broker.protocol.records.batch_records import (
    KeyValue,
    new_batch,
    plain_records,
    records_in_steps,
)
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import NS_PER_MS, Instant, InTransaction, Record
from broker.shards.shard_log import (
    BYTES_PER_LIST,
    RECORDS_PER_LIST,
    Records,
    Replayed,
    TransactionalRecords,
    TransactionEnd,
)

logger = getLogger(__name__)

# Largest read from a device, unless a batch is larger.
_READ_BYTES_MAX: Final = 64 << 10


class ReplicatedShardLog:
    """A coordinator's `ShardLog` over the replicas of this broker."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        flushes: QueuedFlushes,
        clock: Callable[[], Instant],
        *,
        codec: int,
        timeout_ms: int,
        load_bytes: int,
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._appends = ReplicatedAppends(replicas, flushes, lambda: clock().ns)
        self._clock = clock
        self._codec = codec
        self._timeout_ns = timeout_ms * NS_PER_MS
        self._load_bytes = min(load_bytes, _READ_BYTES_MAX)
        self.unreadable_batches = 0

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
        transaction: InTransaction | None = None,
    ) -> None:
        """Append one batch; ``done`` is called when all in-sync replicas have it."""
        key = TopicPartition(self._topic, partition)
        now_ms = self._clock().wall_ms

        def append(led: Partition) -> Appended:
            stamped = [(now_ms, record.key, record.value) for record in records]
            if transaction is None:
                batch = new_batch(stamped, codec=self._codec)
                return led.append(batch, ALL_REPLICAS, now_ms)
            producer_id, epoch, guard = transaction
            assert guard is None or isinstance(guard, VerificationGuard), guard
            batch = new_batch(
                stamped,
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                attributes=TRANSACTIONAL,
            )
            return led.append_of_coordinator(batch, now_ms, guard)

        self._appends.append(key, append, self._timeout_ns, done)

    def is_empty(self, partition: int) -> bool:
        """Return whether the partition's log is empty."""
        log = self._replicas.get(TopicPartition(self._topic, partition)).log
        return log.log_start_offset == log.log_end_offset

    def replay(self, partition: int) -> Iterator[Records]:
        """Iterate over the records outside of transactions."""
        for found in self.replay_all(partition):
            if not isinstance(found, TransactionalRecords | TransactionEnd):
                yield found

    def replay_all(self, partition: int) -> Iterator[Replayed]:
        """Iterate over the partition's records, one read of the log at a time."""
        key = TopicPartition(self._topic, partition)
        log = self._replicas.get(key).log
        end = log.log_end_offset
        walk = _Walk(log.log_start_offset)
        while walk.offset < end:
            # The log may have moved to another directory.
            log = log.successor or log
            segment_end = log.segments.end_of(log.segments.index_of(walk.offset), end)
            try:
                wanted_bytes = walk.skip + self._load_bytes * walk.reach
                piece = read(log, walk.offset, wanted_bytes, end)
                if piece is None:
                    return
                content = memoryview(piece.read())
                yield from walk.over(content, segment_end, len(content) < wanted_bytes)
            except KafkaError as fault:
                if fault.code is ErrorCode.kafka_storage_error:
                    raise
                walk.lost.append(Lost(walk.offset, fault))
                walk.go_on_at(segment_end)
            self._log_lost(partition, walk.lost)
            yield ()

    def _log_lost(self, partition: int, lost: list[Lost]) -> None:
        for offset, fault in lost:
            self.unreadable_batches += 1
            logger.error(
                "an unreadable batch of %s is passed over",
                self._topic,
                extra=fields(partition=partition, offset=offset, fault=fault),
            )
        lost.clear()


class Lost(NamedTuple):
    """An unreadable batch: its offset and the error."""

    offset: int
    fault: KafkaError


class _Walk:
    """Position in a log that may contain unreadable batches.

    The next read begins with the batch at ``offset`` and skips ``skip`` bytes. After a
    batch with a wrong checksum, the next offset is unknown, but the batch's size is
    known.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.skip = 0
        # Size of the next read, as a multiple of the usual size.
        self.reach = 1
        self.lost: list[Lost] = []

    def go_on_at(self, offset: int) -> None:
        """Continue with the batch that contains an offset, or the first after it."""
        self.offset, self.skip, self.reach = offset, 0, 1

    def over(
        self, piece: memoryview, segment_end: int, is_last: bool
    ) -> Iterator[Replayed]:
        """Yield the records of the complete batches of a read.

        ``is_last``: no bytes follow in the segment, which ends at the offset
        ``segment_end``.
        """
        position = self.skip
        try:
            while len(piece) - position >= HEADER_SIZE:
                header = parse_header(piece, position)
                stop = position + header.size
                if stop > len(piece):
                    break
                yield from self._take(header, piece[position:stop], segment_end)
                position = stop
            if position == self.skip and is_last:
                if position < len(piece):
                    raise corrupt(f"{len(piece) - position} bytes are no batch")
                self.go_on_at(segment_end)
            elif position == self.skip:
                self.reach *= 2
        except KafkaError as fault:
            self.lost.append(Lost(self.offset, fault))
            self.go_on_at(segment_end)

    def _take(
        self, header: BatchHeader, batch: memoryview, segment_end: int
    ) -> Iterator[Replayed]:
        """Yield a batch's records; raise CORRUPT_MESSAGE if its offsets are wrong."""
        try:
            check_crc(batch, header.crc)
            if self.offset <= header.last_offset < segment_end:
                yield from _replayed(header, batch)
        except KafkaError as fault:
            self.lost.append(Lost(header.base_offset, fault))
            self.skip += header.size
            yield ()
            return
        if not self.offset <= header.last_offset < segment_end:
            raise corrupt(f"offset {header.last_offset}, not below {segment_end}")
        self.go_on_at(header.last_offset + 1)


def _replayed(header: BatchHeader, batch: memoryview) -> Iterator[Replayed]:
    """Yield the records of a batch, or the end of a transaction.

    Raises CORRUPT_MESSAGE or INVALID_RECORD. Records yielded before the error are
    valid.
    """
    if header.attributes & CONTROL:
        marker = marker_of(header, batch)
        if marker is not None:
            yield TransactionEnd(header.producer_id, not marker.is_abort)
    elif header.attributes & TRANSACTIONAL:
        for records in _in_lists(header, batch):
            yield TransactionalRecords(header.producer_id, records)
    else:
        yield from _in_lists(header, batch)


def _in_lists(header: BatchHeader, batch: memoryview) -> Iterator[Records]:
    """Yield the records with a key; raise as `records_in_steps` does."""
    if header.record_count <= RECORDS_PER_LIST and header.size <= BYTES_PER_LIST:
        plain = plain_records(header, batch)
        if plain is not None:
            yield plain
            return
    some: list[KeyValue] = []
    size = 0
    try:
        for record in records_in_steps(header, batch):
            if record is not None:
                size += len(record.body)
                if record.key is not None:
                    some.append((record.key, record.value))
            if (
                record is None
                or len(some) == RECORDS_PER_LIST
                or size >= BYTES_PER_LIST
            ):
                yield some
                some, size = [], 0
    except KafkaError:
        yield some
        raise
    yield some
