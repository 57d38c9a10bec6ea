"""Produced batches that cannot be taken as they are: Kafka's ``LogValidator``.

Most topics take a producer's bytes untouched. Four settings do not: LogAppendTime
stamps the header, ``compression.type`` packs anew, compaction wants a key in every
record, and the bounds on time stamps want them looked at. Only these pay for it.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.errors import ErrorCode, KafkaError
from broker.log.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    invalid,
    parse_header,
    seal,
    with_log_append_time,
)
from broker.log.codecs import CODECS, compress, decompress
from broker.log.config import LONG_MAX, LogConfig
from broker.log.records import read_records
from broker.log.storage import Buffer

LOG_APPEND_TIME: Final = "LogAppendTime"
_ATTRIBUTES_AT: Final = 21


def needs_rewriting(config: LogConfig) -> bool:
    """Tell whether a topic's settings concern every batch."""
    return (
        config.compacts
        or config.compression_type != "producer"
        or config.message_timestamp_type == LOG_APPEND_TIME
        or config.message_timestamp_before_max_ms != LONG_MAX
    )


def rewritten(records: Buffer, config: LogConfig, now_ms: int) -> Buffer:
    """Return the batch as this topic stores it.

    Raises INVALID_RECORD, INVALID_TIMESTAMP or CORRUPT_MESSAGE.
    """
    header = parse_header(records)
    _inspect(header, records, config, now_ms)
    codec = CODECS.get(config.compression_type)
    if codec is not None and codec != header.attributes & CODEC_MASK:
        records = _packed_anew(header, records, codec)
    if config.message_timestamp_type == LOG_APPEND_TIME:
        records = with_log_append_time(records, now_ms)
    return records


def _inspect(
    header: BatchHeader, batch: Buffer, config: LogConfig, now_ms: int
) -> None:
    bounded = config.message_timestamp_type != LOG_APPEND_TIME
    if bounded and header.max_timestamp != NO_TIMESTAMP:
        _check_time(header.max_timestamp, config, now_ms)
    old_matters = bounded and config.message_timestamp_before_max_ms != LONG_MAX
    if not config.compacts and not old_matters:
        return
    for number, record in enumerate(read_records(header, batch)):
        if record.offset != header.base_offset + number:
            raise invalid(f"record {number} has offset delta {record.offset}")
        if config.compacts and record.key is None:
            raise invalid(f"record {number} of a compacted topic has no key")
        if bounded and record.timestamp != NO_TIMESTAMP:
            _check_time(record.timestamp, config, now_ms)


def _check_time(timestamp: int, config: LogConfig, now_ms: int) -> None:
    after_ms, before_ms = timestamp - now_ms, now_ms - timestamp
    if (
        after_ms > config.message_timestamp_after_max_ms
        or before_ms > config.message_timestamp_before_max_ms
    ):
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"timestamp {timestamp} at {now_ms} is outside of "
            f"-{config.message_timestamp_before_max_ms} ms to "
            f"+{config.message_timestamp_after_max_ms} ms",
        )


def _packed_anew(header: BatchHeader, batch: Buffer, codec: int) -> bytes:
    packed = memoryview(batch)[HEADER_SIZE:]
    plain = decompress(header.attributes & CODEC_MASK, packed)
    anew = bytearray(bytes(memoryview(batch)[:HEADER_SIZE]) + compress(codec, plain))
    attributes = header.attributes & ~CODEC_MASK | codec
    struct.pack_into(">h", anew, _ATTRIBUTES_AT, attributes)
    return bytes(seal(anew))
