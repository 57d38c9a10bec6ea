"""Records of a consumer, unpacked from a broker's response.

Kafka's ``ConsumerRecord`` and ``CompletedFetch``. Batches are checked (CRC) on receipt
and unpacked one by one at a poll, so that prefetched batches stay compressed. Skipped
are control records, records before the position (a broker sends whole batches), and
with ``isolation.level=read_committed`` the batches of transactions that the response
lists as aborted (KIP-98).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    split_batches,
)
from broker.protocol.records.batch_records import read_varint
from broker.protocol.records.codecs import decompress
from broker.protocol.topic_partition import TopicPartition

_ABORT: Final = b"\0\0"


class ConsumerRecord(NamedTuple):
    """A record, with its partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its first offset and its producer."""

    first_offset: int
    producer_id: int


class FetchedBatches:
    """The batches of one partition in a response, and the aborted transactions.

    ``aborted`` is None if aborted records are returned, too.
    """

    def __init__(
        self,
        partition: TopicPartition,
        records: bytes,
        aborted: Iterable[AbortedTransaction] | None,
    ) -> None:
        self._partition = partition
        self._batches = deque(split_batches(records))
        self._committed_only = aborted is not None
        self._aborted = deque(sorted(aborted or ()))
        self._aborting: set[int] = set()
        self.size_bytes = sum(header.size for header, _ in self._batches)
        self.next_offset: int | None = None
        if self._batches:
            last, _ = self._batches[-1]
            self.next_offset = last.last_offset + 1

    def next_batch(self) -> tuple[list[ConsumerRecord], int] | None:
        """Return the records of the next batch, and the size of the batch in bytes.

        Raises CORRUPT_MESSAGE or INVALID_RECORD.
        """
        if not self._batches:
            return None
        header, batch = self._batches.popleft()
        records: list[ConsumerRecord] = []
        if not self._is_left_out(header, batch):
            records = list(_records(self._partition, header, _unpacked(header, batch)))
        return records, header.size

    def _is_left_out(self, header: BatchHeader, batch: memoryview) -> bool:
        # Also before a marker, since the response may begin with the marker.
        while self._aborted and self._aborted[0].first_offset <= header.last_offset:
            self._aborting.add(self._aborted.popleft().producer_id)
        if header.attributes & CONTROL:
            for marker in _records(self._partition, header, _unpacked(header, batch)):
                # A key has a version and a type of two bytes each; type 0 is an abort.
                if (marker.key or b"")[2:4] == _ABORT:
                    self._aborting.discard(header.producer_id)
            return True
        if not (self._committed_only and header.attributes & TRANSACTIONAL):
            return False
        return header.producer_id in self._aborting


def _unpacked(header: BatchHeader, batch: memoryview) -> bytes:
    return decompress(header.attributes & CODEC_MASK, batch[HEADER_SIZE:])


def _records(
    partition: TopicPartition, header: BatchHeader, data: bytes
) -> Iterator[ConsumerRecord]:
    stamped = header.attributes & LOG_APPEND_TIME
    topic, number = partition
    at = 0
    try:
        for _ in range(header.record_count):
            length, at = read_varint(data, at)
            end = at + length
            timestamp, at = read_varint(data, at + 1)
            offset, at = read_varint(data, at)
            key, at = _field(data, at)
            value, at = _field(data, at)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if data[at]:
                headers, at = _headers(data, at)
            else:
                at += 1
            if at != end:
                raise _invalid("a record's length and fields disagree")
            yield ConsumerRecord(
                topic,
                number,
                header.base_offset + offset,
                header.max_timestamp if stamped else header.base_timestamp + timestamp,
                key,
                value,
                headers,
            )
    except (IndexError, UnicodeDecodeError):
        raise _invalid("a record ends within a field") from None


def _headers(data: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(data, at)
    if count < 0:
        raise _invalid(f"{count} headers")
    found = []
    for _ in range(count):
        name, at = _field(data, at)
        content, at = _field(data, at)
        if name is None:
            raise _invalid("a header without a key")
        found.append((name.decode(), content))
    return tuple(found), at


def _field(data: bytes, at: int) -> tuple[bytes | None, int]:
    size = data[at]
    if size & 0x81:
        # More than one byte, or negative.
        size, at = read_varint(data, at)
        if size < 0:
            return None, at
    else:
        size >>= 1
        at += 1
    end = at + size
    if end > len(data):
        raise _invalid(f"a field of {size} bytes")
    return data[at:end], end


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
