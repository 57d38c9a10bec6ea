"""The header of a v2 record batch: parsing, checks, and updates as in Kafka.

The records themselves are opaque bytes here; `validation` parses them. The header is
the 61 bytes before them, with a CRC-32C of all bytes from ``attributes`` on. The base
offset and the partition leader epoch precede the CRC, so a leader assigns them without
changing the rest. Checks and error codes are those of Kafka's ``ProduceRequest``,
``LogValidator`` and ``DefaultRecordBatch.ensureValid``. Magic 0 and 1 are rejected.

Layout (big endian)::

    0 baseOffset 8 · 8 batchLength 4 · 12 partitionLeaderEpoch 4 · 16 magic 1 ·
    17 crc 4 · 21 attributes 2 · 23 lastOffsetDelta 4 · 27 baseTimestamp 8 ·
    35 maxTimestamp 8 · 43 producerId 8 · 51 producerEpoch 2 · 53 baseSequence 4 ·
    57 count 4 · 61 records
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c._crc32c import crc32c

from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode, KafkaError

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
# Bytes that batchLength does not count: base offset and batchLength itself.
LENGTH_OVERHEAD: Final = 12
MAGIC: Final = 2
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
# Attributes of a producer that a stored batch keeps.
_PRODUCED: Final = CODEC_MASK | TRANSACTIONAL
NO_TIMESTAMP: Final = -1

# Fields written by a leader: base offset, batch length, partition leader epoch.
PREFIX: Final = struct.Struct(">qii")
_FROM_CRC: Final = 21
MAGIC_AT: Final = 16
# Position of the attribute byte that contains the codec.
CODEC_AT: Final = 22
_MAX_TIMESTAMP_AT: Final = 35
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_LAST_CODEC: Final = 4


class BatchHeader(NamedTuple):
    """The fields of a batch header, in their order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Return the bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record (or of one that compaction removed)."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Return the sequence number of the last record, which wraps after 2^31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def corrupt(message: str) -> KafkaError:
    """Return the error for bytes that are not a valid batch."""
    return KafkaError(ErrorCode.corrupt_message, message)


def invalid(message: str) -> KafkaError:
    """Return the error for a batch that Kafka rejects."""
    return KafkaError(ErrorCode.invalid_record, message)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at ``position``; raise CORRUPT_MESSAGE if it is invalid.

    The CRC is not checked.
    """
    if len(buffer) - position < HEADER_SIZE:
        raise corrupt(f"{len(buffer) - position} bytes are no batch header")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise corrupt(f"magic {header.magic}, expected {MAGIC}")
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise corrupt(f"batch length {header.batch_length} is below the header's")
    if header.base_offset < 0 or header.last_offset_delta < 0:
        raise corrupt(f"offsets {header.base_offset} + {header.last_offset_delta}")
    return header


def check_crc(batch: Buffer, crc: int) -> None:
    """Raise CORRUPT_MESSAGE unless the CRC-32C of the whole batch is ``crc``."""
    with memoryview(batch) as view, view[_FROM_CRC:] as covered:
        computed = crc32c(covered)
    if computed != crc:
        raise corrupt(f"CRC is {crc:#010x}, the bytes have {computed:#010x}")


def split_batches(records: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield header and bytes of each batch; ignore an incomplete last batch.

    A leader's Fetch response may end within a batch. CRCs are checked. Raises
    CORRUPT_MESSAGE.
    """
    view = memoryview(records)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = parse_header(view, position)
        end = position + header.size
        if end > len(view):
            return
        batch = view[position:end]
        check_crc(batch, header.crc)
        yield header, batch
        position = end


def check_produced(records: Buffer, max_message_bytes: int) -> tuple[int, ...]:
    """Return the header fields of a producer's single batch, if Kafka accepts it.

    Raises INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_TIMESTAMP or
    UNSUPPORTED_COMPRESSION_TYPE. Returns the fields of `BatchHeader` as a plain tuple,
    which costs less per Produce.
    """
    size = len(records)
    if size < HEADER_SIZE or records[MAGIC_AT] != MAGIC:
        _refuse_head(records)
    fields = HEADER.unpack_from(records)
    (offset, length, _, _, crc, attributes, delta, _, _, pid, _, sequence, count) = (
        fields
    )
    if length + LENGTH_OVERHEAD != size:
        _refuse_length(length, size)
    if offset:
        raise invalid(f"a base offset of {offset}, expected 0")
    if size > max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"batch of {size} bytes, max.message.bytes is {max_message_bytes}",
        )
    if crc32c(memoryview(records)[_FROM_CRC:]) != crc:
        raise corrupt("the CRC does not match the bytes")
    if count <= 0 or delta != count - 1:
        raise invalid(f"{count} records, last offset delta {delta}")
    if attributes & ~_PRODUCED or attributes & CODEC_MASK > _LAST_CODEC:
        _refuse_attributes(attributes)
    if pid >= 0 and sequence < 0:
        raise invalid(f"producer {pid} with base sequence {sequence}")
    return fields


def check_framing(records: Buffer) -> None:
    """Raise INVALID_RECORD or CORRUPT_MESSAGE unless the frame is that of one batch.

    This part of `check_produced` precedes all other checks of a request.
    """
    size = len(records)
    if size < HEADER_SIZE or records[MAGIC_AT] != MAGIC:
        _refuse_head(records)
    length = HEADER.unpack_from(records)[1]
    if length + LENGTH_OVERHEAD != size:
        _refuse_length(length, size)


def _refuse_head(records: Buffer) -> None:
    """Raise for too few bytes, and for an unsupported message format."""
    size = len(records)
    if size <= MAGIC_AT:
        raise invalid(f"{size} bytes hold no record batch")
    magic = records[MAGIC_AT]
    if magic == MAGIC:
        raise invalid(f"{size} bytes are no batch header")
    error = invalid if magic < MAGIC else corrupt
    raise error(f"magic {magic}, expected {MAGIC}")


def _refuse_length(length: int, size: int) -> None:
    if length + LENGTH_OVERHEAD < HEADER_SIZE:
        raise corrupt(f"batch length {length} in {size} bytes")
    if length + LENGTH_OVERHEAD < size:
        raise invalid("more than one record batch for a partition")
    raise invalid(f"not one whole batch: batch length {length} in {size} bytes")


def _refuse_attributes(attributes: int) -> None:
    """Raise for attributes that a producer may not set; ignore unknown attributes."""
    if attributes & CONTROL:
        raise invalid("clients are not allowed to write control records")
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(
            ErrorCode.invalid_timestamp, "a producer sent LogAppendTime batches"
        )
    if attributes & DELETE_HORIZON:
        raise invalid("clients are not allowed to set a delete horizon")
    if attributes & CODEC_MASK > _LAST_CODEC:
        raise KafkaError(
            ErrorCode.unsupported_compression_type,
            f"compression codec {attributes & CODEC_MASK}",
        )


def with_max_timestamp(
    batch: Buffer, timestamp_type: int, max_timestamp: int
) -> Buffer:
    """Return the batch with this largest timestamp, with a new CRC if needed.

    ``timestamp_type`` is 0 or `LOG_APPEND_TIME`. A changed header keeps only the codec
    and the transactional attribute: producers may set no others, and Kafka drops
    attributes without meaning. Follows ``DefaultRecordBatch.setMaxTimestamp``.
    """
    fields = HEADER.unpack_from(batch)
    if fields[8] == max_timestamp and fields[5] & LOG_APPEND_TIME == timestamp_type:
        return batch
    stamped = bytearray(batch)
    attributes = fields[5] & _PRODUCED | timestamp_type
    _ATTRIBUTES.pack_into(stamped, _FROM_CRC, attributes)
    _MAX_TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_AT, max_timestamp)
    return bytes(seal(stamped))


def with_log_append_time(batch: Buffer, now_ms: int) -> Buffer:
    """Return the batch with the broker's time as LogAppendTime."""
    return with_max_timestamp(batch, LOG_APPEND_TIME, now_ms)


def seal(batch: bytearray) -> bytearray:
    """Set batch length and CRC of a whole batch, in place, and return it."""
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    with memoryview(batch) as view, view[_FROM_CRC:] as covered:
        _CRC.pack_into(batch, 17, crc32c(covered))
    return batch
