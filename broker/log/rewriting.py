"""Produced batches that cannot be taken as they are: Kafka's ``LogValidator``.

Most topics take a producer's bytes untouched. Four settings do not: LogAppendTime
stamps the header, ``compression.type`` packs anew, compaction wants a key in every
record, and the bounds on time stamps want them looked at. Only these pay for it.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.log.segments.log_config import LONG_MAX, LogConfig
from broker.log.steps import STEP_RECORDS, Steps
from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode, InvalidRecords, KafkaError
from broker.protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    invalid,
    parse_header,
    seal,
    with_log_append_time,
)
from broker.protocol.records.codecs import CODECS, Packer, unpacked
from broker.protocol.records.records import iter_records

LOG_APPEND_TIME: Final = "LogAppendTime"
_ATTRIBUTES_AT: Final = 21
# So many bad records are told of a batch; Kafka tells all, however many.
_FAULTS_MAX: Final = 1000


def needs_rewriting(config: LogConfig) -> bool:
    """Tell whether a topic's settings concern every batch."""
    stamps = config.message_timestamp_type == LOG_APPEND_TIME
    return stamps or looks_into_records(config)


def looks_into_records(config: LogConfig) -> bool:
    """Tell whether a topic's settings make its batches be unpacked."""
    return (
        config.compacts
        or config.compression_type != "producer"
        or config.message_timestamp_before_max_ms != LONG_MAX
    )


def rewriting(
    records: Buffer, config: LogConfig, now_ms: int, partition: str
) -> Steps[Buffer]:
    """Make of a batch, whose header was checked, what this topic stores; in steps.

    ``partition`` is how clients are told of it: the topic's name and the index.
    Raises INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE or CORRUPT_MESSAGE.
    """
    header = parse_header(records)
    yield from _inspect(header, records, config, now_ms, partition)
    codec = CODECS.get(config.compression_type)
    if codec is not None and codec != header.attributes & CODEC_MASK:
        records = yield from _packed_anew(header, records, codec, config)
    if config.message_timestamp_type == LOG_APPEND_TIME:
        records = with_log_append_time(records, now_ms)
    return records


def _inspect(
    header: BatchHeader, batch: Buffer, config: LogConfig, now_ms: int, partition: str
) -> Steps[None]:
    bounded = config.message_timestamp_type != LOG_APPEND_TIME
    newest = header.max_timestamp if bounded else NO_TIMESTAMP
    out_of_time = _out_of_time(newest, config, now_ms)
    old_matters = bounded and config.message_timestamp_before_max_ms != LONG_MAX
    if not config.compacts and not old_matters and not out_of_time:
        return
    faults = _Faults()
    compacts, (oldest, latest) = config.compacts, _bounds(config, now_ms)
    for number, record in enumerate(iter_records(header, batch)):
        offset, timestamp, key, _, _ = record
        if offset != header.base_offset + number:
            raise invalid(f"record {number} has offset delta {offset}")
        if compacts and key is None:
            faults.keyless(number, partition)
        elif (
            bounded and not oldest <= timestamp <= latest and timestamp != NO_TIMESTAMP
        ):
            faults.out_of_time(number, timestamp, config, now_ms)
        if number % STEP_RECORDS == STEP_RECORDS - 1:
            if faults.are_enough:
                break
            yield None
    faults.tell()
    if out_of_time:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"{newest} is told as the last timestamp of a batch that has none so late",
        )


def _out_of_time(timestamp: int, config: LogConfig, now_ms: int) -> bool:
    oldest, latest = _bounds(config, now_ms)
    return timestamp != NO_TIMESTAMP and not oldest <= timestamp <= latest


def _bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Return the oldest and the latest time stamp that a record may have."""
    return (
        now_ms - config.message_timestamp_before_max_ms,
        now_ms + config.message_timestamp_after_max_ms,
    )


class _Faults:
    """The records of a batch that are refused, in the words of ``LogValidator``."""

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
        low, high = _bounds(config, now_ms)
        self._code = ErrorCode.invalid_timestamp
        self._add(
            number,
            f"Timestamp {timestamp} of message with offset {number} is out of "
            f"range. The timestamp should be within [{low}, {high}]",
        )

    def tell(self) -> None:
        """Raise `InvalidRecords` if there is one."""
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
    attributes = header.attributes & ~CODEC_MASK | codec
    struct.pack_into(">h", anew, _ATTRIBUTES_AT, attributes)
    return bytes(seal(anew))
