"""The records of ``__transaction_state``, in Kafka's own format.

A key is a version and the transactional id (``TransactionLogKey`` 0). A value is read
in versions 0 and 1 (``TransactionLogValue``; 1 is flexible and has tagged fields for
KIP-890). Version 1 is written once ``transaction.version`` 1 is finalized. Before that,
a restart loses the new producer id of a client of EndTxn 5, as in Kafka.

Format: ``transaction-coordinator/src/main/resources/common/message/*.json`` in Kafka.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.varint import encode_varint
from broker.shards.effects import Record
from broker.shards.record_fields import RecordReader, UnreadableRecord, classic_string
from broker.transactions.transaction import TransactionValue
from broker.transactions.transaction_state import IDLE, PREPARED, TransactionState

_KEY_VERSION: Final = 0
_NEWEST_VALUE: Final = 1
_FLEXIBLE_FROM: Final = 1
# producer id, epoch, time-out, state
_HEAD: Final = struct.Struct(">hqhib")
# last update, start
_TIMES: Final = struct.Struct(">qq")
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = range(3)


def transaction_record(
    name: str, value: TransactionValue, transaction_version: int
) -> Record:
    """Return the record of a transactional id at a level of ``transaction.version``."""
    assert value.state is not TransactionState.DEAD, value
    flexible = transaction_version >= _FLEXIBLE_FROM
    head = _HEAD.pack(
        int(flexible),
        value.producer_id,
        value.epoch,
        value.timeout_ms,
        value.state.value,
    )
    times = _TIMES.pack(value.updated_ms, value.started_ms)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(value.partitions):
        by_topic.setdefault(topic, []).append(partition)
    if flexible:
        tail = _compact_topics(value, by_topic) + times + _tags(value)
    else:
        tail = _topics(value, by_topic) + times
    return Record(_key(name), head + tail)


def transaction_tombstone(name: str) -> Record:
    """Return the record that removes a transactional id."""
    return Record(_key(name), None)


def _key(name: str) -> bytes:
    return struct.pack(">h", _KEY_VERSION) + classic_string(name)


def _topics(value: TransactionValue, by_topic: dict[str, list[int]]) -> bytes:
    if value.state is TransactionState.EMPTY:
        return struct.pack(">i", -1)
    rows = [struct.pack(">i", len(by_topic))]
    for topic, partitions in by_topic.items():
        count = len(partitions)
        rows += (classic_string(topic), struct.pack(f">i{count}i", count, *partitions))
    return b"".join(rows)


def _compact_topics(value: TransactionValue, by_topic: dict[str, list[int]]) -> bytes:
    if value.state is TransactionState.EMPTY:
        return b"\0"
    rows = [encode_varint(len(by_topic) + 1)]
    for topic, partitions in by_topic.items():
        name, count = topic.encode(), len(partitions)
        rows += (encode_varint(len(name) + 1), name, encode_varint(count + 1))
        rows += (struct.pack(f">{count}i", *partitions), b"\0")
    return b"".join(rows)


def _tags(value: TransactionValue) -> bytes:
    found = [
        (tag, struct.pack(form, content))
        for tag, form, content, default in (
            (_PREVIOUS_ID, ">q", value.previous_producer_id, -1),
            (_NEXT_ID, ">q", value.next_producer_id, -1),
            (_CLIENT_VERSION, ">h", value.client_version, 0),
        )
        if content != default
    ]
    rows = [encode_varint(len(found))]
    for tag, data in found:
        rows += (encode_varint(tag), encode_varint(len(data)), data)
    return b"".join(rows)


def read_name(key: bytes) -> str | None:
    """Return the transactional id of a key; None for a kind of key to skip."""
    reader = RecordReader(key)
    return reader.string() if reader.int16() == _KEY_VERSION else None


def read_value(data: bytes) -> TransactionValue:
    """Return a value; raise `UnreadableRecord`."""
    reader = RecordReader(data)
    reader.value_version(_NEWEST_VALUE, _FLEXIBLE_FROM)
    producer_id, epoch = reader.int64(), reader.int16()
    timeout_ms, number = reader.int32(), reader.int8()
    try:
        state = TransactionState(number)
    except ValueError as fault:
        raise UnreadableRecord(f"found transaction state {number}") from fault
    partitions = []
    for _ in range(reader.nullable_length() or 0):
        topic = reader.string()
        partitions += [
            TopicPartition(topic, reader.int32()) for _ in range(reader.length())
        ]
        reader.tags()
    updated_ms, started_ms = reader.int64(), reader.int64()
    tags = reader.tags()
    if state not in IDLE | PREPARED | {TransactionState.ONGOING}:
        raise UnreadableRecord(f"found transaction state {state.label}")
    if producer_id < 0 or epoch < 0:
        raise UnreadableRecord(f"found producer id {producer_id}, epoch {epoch}")
    return TransactionValue(
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(() if state in IDLE else partitions),
        updated_ms=updated_ms,
        started_ms=started_ms,
        previous_producer_id=_number(tags.get(_PREVIOUS_ID), -1),
        next_producer_id=_number(tags.get(_NEXT_ID), -1),
        client_version=_number(tags.get(_CLIENT_VERSION), 0),
    )


def _number(data: bytes | None, default: int) -> int:
    return default if data is None else int.from_bytes(data, "big", signed=True)
