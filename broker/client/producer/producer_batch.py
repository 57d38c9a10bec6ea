"""A batch of records for one partition: filled, sent, acknowledged, possibly halved.

Kafka's ``ProducerBatch`` and ``MemoryRecordsBuilder``. Records are encoded when they
are added, so that the size of the batch is exact. The batch is compressed when it is
first sent; the payload is then kept, since a retry only changes the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import trio

from broker.protocol.errors import KafkaError
from broker.protocol.records.batch import (
    HEADER,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    seal,
)
from broker.protocol.records.batch_records import write_varint
from broker.protocol.records.codecs import compress
from broker.protocol.topic_partition import TopicPartition

NO_OFFSET: Final = -1
# Most lengths and deltas are small.
_TABLE_SIZE: Final = 1 << 13
_VARINT: Final = tuple(write_varint(value) for value in range(_TABLE_SIZE))
_NULL: Final = write_varint(-1)

Headers = Sequence[tuple[str, bytes | None]]


class RecordMetadata(NamedTuple):
    """The partition and offset of a written record; offset -1: unknown."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Identity(NamedTuple):
    """Producer id, epoch and first sequence number of a batch; -1: not idempotent."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


ANONYMOUS: Final = Identity()


class ProducerBatch:
    """A batch of records for one partition.

    ``charge`` is the batch's share of the buffer pool, returned at the end.
    """

    __slots__ = (
        "attempts",
        "base_timestamp",
        "charge",
        "count",
        "created_s",
        "done",
        "failure",
        "halves",
        "identity",
        "is_transactional",
        "max_timestamp",
        "offset",
        "on_wire",
        "packed",
        "partition",
        "pieces",
        "retry_at_s",
        "size",
        "stamped_ms",
        "timestamps",
    )

    def __init__(
        self,
        partition: TopicPartition,
        created_s: float,
        charge: int,
        is_transactional: bool = False,
    ) -> None:
        self.is_transactional = is_transactional
        self.partition = partition
        self.created_s = created_s
        self.charge = charge
        self.pieces: list[bytes] = []
        self.timestamps: list[int] = []
        self.count = 0
        self.size = HEADER_SIZE
        self.base_timestamp = 0
        self.max_timestamp = 0
        self.attempts = 0
        self.retry_at_s = 0.0
        self.on_wire = False
        self.identity: Identity = ANONYMOUS
        self.packed: bytes | None = None
        self.done = trio.Event()
        self.failure: KafkaError | None = None
        self.offset = NO_OFFSET
        self.stamped_ms = -1
        self.halves: tuple[ProducerBatch, ProducerBatch] | None = None

    # ---- filling --------------------------------------------------------------------

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        limit: int,
    ) -> bool:
        """Add a record unless a non-empty batch would exceed ``limit``."""
        count = self.count
        if count == 0:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        piece = _record(timestamp_ms - self.base_timestamp, count, key, value, headers)
        size = self.size + len(piece)
        if count and size > limit:
            return False
        self.pieces.append(piece)
        self.timestamps.append(timestamp_ms)
        self.size = size
        self.count = count + 1
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        return True

    # ---- sending --------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the batch has been sent, and accepts no further records."""
        return self.attempts > 0

    def to_wire(self, codec: int) -> bytes:
        """Return the batch as bytes, with its current identity."""
        if self.packed is None:
            self.packed = compress(codec, b"".join(self.pieces))
        head = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=2,
            crc=0,
            attributes=codec | (TRANSACTIONAL if self.is_transactional else 0),
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.identity.sequence,
            record_count=self.count,
        )
        return bytes(seal(bytearray(HEADER.pack(*head) + self.packed)))

    # ---- ending ---------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether the batch has succeeded, failed or been halved."""
        return self.done.is_set()

    def succeed(self, offset: int, stamped_ms: int) -> None:
        """Record success: the base offset, and the log append time or -1."""
        self.offset, self.stamped_ms = offset, stamped_ms
        self.pieces.clear()
        self.done.set()

    def fail(self, failure: KafkaError) -> None:
        """Record a failure: the batch has not, or may not have, been written."""
        self.failure = failure
        self.pieces.clear()
        self.done.set()

    def halve(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Return two batches with the records, which replace this one and its charge.

        The offset and timestamp deltas are encoded again.
        """
        middle = self.count // 2
        assert middle, "a batch of one record cannot be halved"
        halves = tuple(
            self._part(start, end) for start, end in ((0, middle), (middle, self.count))
        )
        first, second = halves
        first.charge, self.charge = self.charge, 0
        self.halves = (first, second)
        self.pieces.clear()
        self.done.set()
        return first, second

    def _part(self, start: int, end: int) -> ProducerBatch:
        part = ProducerBatch(self.partition, self.created_s, 0, self.is_transactional)
        part.base_timestamp = self.timestamps[start]
        part.timestamps = self.timestamps[start:end]
        part.max_timestamp = max(part.timestamps)
        part.pieces = [
            _renumbered(piece, at, timestamp - part.base_timestamp)
            for at, (piece, timestamp) in enumerate(
                zip(self.pieces[start:end], part.timestamps, strict=True)
            )
        ]
        part.count = end - start
        part.size = HEADER_SIZE + sum(map(len, part.pieces))
        part.attempts = self.attempts
        return part


class Receipt:
    """A record in the accumulator; `wait` returns its outcome."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    async def wait(self) -> RecordMetadata:
        """Wait until the record is written; raises `KafkaError` if it is not.

        Cancelling the wait does not cancel the record.
        """
        batch, index = self._batch, self._index
        await batch.done.wait()
        while batch.halves is not None:
            first, second = batch.halves
            if index < first.count:
                batch = first
            else:
                batch, index = second, index - first.count
            await batch.done.wait()
        if batch.failure is not None:
            # A shared error object would collect the tracebacks of all waiting tasks.
            raise KafkaError(batch.failure.code, batch.failure.message)
        stamped = batch.stamped_ms
        return RecordMetadata(
            *batch.partition,
            NO_OFFSET if batch.offset == NO_OFFSET else batch.offset + index,
            self._timestamp_ms if stamped == -1 else stamped,
        )


def _record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> bytes:
    """Return a record with its length, as ``DefaultRecord.writeTo``."""
    body = b"".join(
        (
            b"\0",
            _varint(timestamp_delta),
            _varint(offset_delta),
            _NULL if key is None else _varint(len(key)) + key,
            _NULL if value is None else _varint(len(value)) + value,
            b"\0" if not headers else _headers(headers),
        )
    )
    return _varint(len(body)) + body


def _headers(headers: Headers) -> bytes:
    pieces = [_varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        pieces += (_varint(len(encoded)), encoded)
        pieces.append(_NULL if content is None else _varint(len(content)) + content)
    return b"".join(pieces)


def _renumbered(piece: bytes, offset_delta: int, timestamp_delta: int) -> bytes:
    """Return an encoded record with other deltas; the other fields are copied."""
    at = _behind_varint(piece, 0) + 1
    at = _behind_varint(piece, _behind_varint(piece, at))
    body = b"\0" + _varint(timestamp_delta) + _varint(offset_delta) + piece[at:]
    return _varint(len(body)) + body


def _behind_varint(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _varint(value: int) -> bytes:
    return _VARINT[value] if 0 <= value < _TABLE_SIZE else write_varint(value)
