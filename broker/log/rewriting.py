"""Validation of produced batches and conversion to the stored form (``LogValidator``).

All records of a batch are parsed (`broker.protocol.records.validation`). The header
gets the largest timestamp of the records, or the append time under LogAppendTime. The
batch is recompressed if ``compression.type`` requires this. If a key is missing under
compaction, or a timestamp may be out of bounds, records are checked one by one, to
report the rejected ones.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.log.segments.log_config import LONG_MAX, LogConfig
from broker.log.steps import Steps
from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode, InvalidRecords, KafkaError
from broker.protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
    seal,
    with_log_append_time,
    with_max_timestamp,
)
from broker.protocol.records.batch_records import as_long, heads_in_steps
from broker.protocol.records.codecs import CODECS, Packer, unpacked
from broker.protocol.records.validation import contents_of

LOG_APPEND_TIME: Final = "LogAppendTime"
_ATTRIBUTES_AT: Final = 21
# Largest number of bad records reported per batch; Kafka reports all.
_FAULTS_MAX: Final = 1000


def keeps_batches(config: LogConfig) -> bool:
    """Return whether the header suffices to apply a topic's settings.

    If so, a valid batch whose largest timestamp is right and recent is stored
    unchanged.
    """
    return (
        not config.compacts
        and config.compression_type == "producer"
        and config.message_timestamp_type != LOG_APPEND_TIME
        and config.message_timestamp_before_max_ms == LONG_MAX
    )


def rewriting(
    records: Buffer, config: LogConfig, now_ms: int, partition: str
) -> Steps[Buffer]:
    """Validate a batch with a checked header; return the batch to store, in steps.

    ``partition`` is the topic's name and the index, for error messages. Raises
    INVALID_RECORD, INVALID_TIMESTAMP or MESSAGE_TOO_LARGE.
    """
    header = parse_header(records)
    found = yield from contents_of(header.attributes, header.record_count, records)
    oldest = header.base_timestamp + found.smallest_delta
    newest = header.base_timestamp + found.largest_delta
    stamps = config.message_timestamp_type == LOG_APPEND_TIME
    if (config.compacts and found.lacks_key) or not (
        stamps or _are_allowed(oldest, newest, config, now_ms)
    ):
        newest = yield from _inspect(header, records, config, now_ms, partition)
    codec = CODECS.get(config.compression_type)
    if codec is not None and codec != header.attributes & CODEC_MASK:
        records = yield from _packed_anew(header, records, codec, config)
    if stamps:
        return with_log_append_time(records, now_ms)
    return with_max_timestamp(records, 0, max(newest, NO_TIMESTAMP))


def _are_allowed(oldest: int, newest: int, config: LogConfig, now_ms: int) -> bool:
    """Return whether all timestamps of the range are valid, without overflow."""
    return (
        oldest >= -LONG_MAX
        and now_ms - config.message_timestamp_before_max_ms <= oldest
        and newest <= min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX)
    )


def _inspect(
    header: BatchHeader, batch: Buffer, config: LogConfig, now_ms: int, partition: str
) -> Steps[int]:
    """Check records one by one; return the largest timestamp if all are valid."""
    faults = _Faults()
    bounded = config.message_timestamp_type != LOG_APPEND_TIME
    newest = NO_TIMESTAMP
    number = 0
    for head in heads_in_steps(header, batch):
        if head is None:
            if faults.are_enough:
                break
            yield None
            continue
        newest = max(newest, head.timestamp)
        if config.compacts and head.lacks_key:
            faults.keyless(number, partition)
        elif bounded and _is_out_of_time(head.timestamp, config, now_ms):
            faults.out_of_time(number, head.timestamp, config, now_ms)
        number += 1
    faults.raise_if_any()
    return newest


def _is_out_of_time(timestamp: int, config: LogConfig, now_ms: int) -> bool:
    """Return whether Kafka rejects a timestamp, with its 64-bit overflow."""
    age_ms = as_long(now_ms - timestamp)
    return timestamp != NO_TIMESTAMP and (
        age_ms > config.message_timestamp_before_max_ms
        or as_long(-age_ms) > config.message_timestamp_after_max_ms
    )


class _Faults:
    """The rejected records of a batch, with the messages of ``LogValidator``."""

    def __init__(self) -> None:
        self._records: list[tuple[int, str]] = []
        self._code = ErrorCode.invalid_record

    @property
    def are_enough(self) -> bool:
        return len(self._records) == _FAULTS_MAX

    def _add(self, number: int, text: str) -> None:
        if not self.are_enough:
            self._records.append((number, text))

    def keyless(self, number: int, partition: str) -> None:
        self._add(
            number,
            "Compacted topic cannot accept message without key in topic "
            f"partition {partition}",
        )

    def out_of_time(
        self, number: int, timestamp: int, config: LogConfig, now_ms: int
    ) -> None:
        low = as_long(now_ms - config.message_timestamp_before_max_ms)
        high = as_long(now_ms + config.message_timestamp_after_max_ms)
        self._code = ErrorCode.invalid_timestamp
        self._add(
            number,
            f"Timestamp {timestamp} of message with offset {number} is out of "
            f"range. The timestamp should be within [{low}, {high}]",
        )

    def raise_if_any(self) -> None:
        """Raise `InvalidRecords` if any record was rejected."""
        if not self._records:
            return
        message = "One or more records have been rejected due to invalid timestamp"
        if self._code is ErrorCode.invalid_record:
            first = ", ".join(
                f"RecordError(batchIndex={number}, message='{text}')"
                for number, text in self._records[:3]
            )
            message = (
                f"One or more records have been rejected due to {len(self._records)} "
                "record errors in total, and only showing the first three errors at "
                f"most: [{first}]"
            )
        raise InvalidRecords(self._code, message, self._records)


def _packed_anew(
    header: BatchHeader, batch: Buffer, codec: int, config: LogConfig
) -> Steps[bytes]:
    packer = Packer(codec, level=config.compression_level)
    anew = bytearray(memoryview(batch)[:HEADER_SIZE])
    for piece in unpacked(
        header.attributes & CODEC_MASK, memoryview(batch)[HEADER_SIZE:]
    ):
        anew += packer.add(piece)
        if len(anew) > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"packed as {config.compression_type} the batch is larger than "
                f"max.message.bytes, {config.max_message_bytes}",
            )
        yield None
    anew += packer.end()
    attributes = header.attributes & TRANSACTIONAL | codec
    struct.pack_into(">h", anew, _ATTRIBUTES_AT, attributes)
    return bytes(seal(anew))
