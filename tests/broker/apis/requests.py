"""Requests for tests: entities of any version, built from the given fields.

A field that the version lacks is omitted. A field without a value is zero, empty or
null. Batches are built byte by byte in Kafka's message format 2.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
import typing
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from crc32c import crc32c

from broker.protocol.schemas.composing import ControllerRequests
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionState,
    StopReplicaRequest,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

# Codes of an ACL and of an ACL filter, other than UNKNOWN.
ACL_KINDS = {
    "resource_type": 2,
    "resource_pattern_type": 3,
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
}
START_MS = 1_700_000_000_000
SECONDS_30 = timedelta(seconds=30)


def entity(cls: type[Any], fields: Mapping[str, Any]) -> Any:
    """Build a kio entity; nested entities are dictionaries, arrays are lists."""
    values = {}
    for name, (hint, has_default) in _fields_of(cls).items():
        if name in fields:
            values[name] = _value(hint, fields[name])
        elif not has_default:
            values[name] = _zero(hint)
    return cls(**values)


@cache
def _fields_of(cls: type[Any]) -> Mapping[str, tuple[Any, bool]]:
    """Return the type of each field, and whether it has a default.

    Tests build entities by the ten thousand, and reading type hints takes longer than
    all else.
    """
    hints = typing.get_type_hints(cls, vars(sys.modules[cls.__module__]))
    return {
        field.name: (hints[field.name], field.default is not dataclasses.MISSING)
        for field in dataclasses.fields(cls)
    }


def _value(hint: Any, given: Any) -> Any:
    if isinstance(given, Mapping):
        types = (part for part in _parts(hint) if isinstance(part, type))
        return entity(next(filter(dataclasses.is_dataclass, types)), given)
    if isinstance(given, list | tuple):
        return tuple(_value(hint, each) for each in given)
    return given


@cache
def _parts(hint: object) -> tuple[object, ...]:
    arguments = typing.get_args(hint)
    return (hint, *(part for each in arguments for part in _parts(each)))


@cache
def _zero(hint: Any) -> Any:
    parts = _parts(hint)
    if type(None) in typing.get_args(hint):
        return None
    if tuple in (typing.get_origin(part) for part in parts):
        return ()
    for kind, zero in ((bool, False), (int, 0), (str, ""), (bytes, b"")):
        if isinstance(hint, type) and issubclass(hint, kind):
            return zero
    if isinstance(hint, type) and issubclass(hint, timedelta):
        return timedelta(0)
    raise AssertionError(hint)


# ---- records ----


def batch(
    *values: bytes,
    timestamp_ms: int = START_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """Return an uncompressed batch as a producer sends it; one ms between records.

    ``producer`` is (producer id, epoch, base sequence).
    """
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    covered = (
        struct.pack(
            ">hiqqqhii",
            attributes,
            len(values) - 1,
            timestamp_ms,
            timestamp_ms + len(values) - 1,
            *producer,
            len(values),
        )
        + records
    )
    head = struct.pack(">qiiBI", 0, len(covered) + 9, -1, 2, crc32c(covered))
    return head + covered


def _record(delta: int, value: bytes) -> bytes:
    content = b"\0" + _varint(delta) * 2 + _varint(-1) + _varint(len(value)) + value
    content += _varint(0)
    return _varint(len(content)) + content


def _varint(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def values_of(records: bytes) -> list[tuple[int, bytes]]:
    """Return (offset, value) of every record of uncompressed batches."""
    found, at = [], 0
    while at < len(records):
        base, length = struct.unpack_from(">qi", records, at)
        (count,) = struct.unpack_from(">i", records, at + 57)
        position = at + 61
        for _ in range(count):
            size, position = _read_varint(records, position)
            end = position + size
            position += 1
            _, position = _read_varint(records, position)
            delta, position = _read_varint(records, position)
            key_length, position = _read_varint(records, position)
            position += max(key_length, 0)
            value_length, position = _read_varint(records, position)
            found.append((base + delta, records[position : position + value_length]))
            position = end
        at += 12 + length
    return found


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    rest = shift = 0
    while True:
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), position


# ---- requests as fields ----


def produce_fields(
    batches: Mapping[tuple[str | UUID, int], bytes | None]
    | Mapping[tuple[str, int], bytes | None],
    acks: int = 1,
    timeout_ms: int = 30_000,
) -> dict[str, Any]:
    """Return the fields of a Produce: a batch for each (topic, partition).

    A topic's id stands for its name from version 13 on.
    """
    topics: dict[str | UUID, list[dict[str, Any]]] = {}
    for (topic, index), records in batches.items():
        topics.setdefault(topic, []).append({"index": index, "records": records})
    return {
        "acks": acks,
        "timeout": timedelta(milliseconds=timeout_ms),
        "topic_data": [
            {
                "topic_id" if isinstance(topic, UUID) else "name": topic,
                "partition_data": data,
            }
            for topic, data in topics.items()
        ],
    }


def fetch_fields(
    offsets: Mapping[tuple[str | UUID, int], int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
    last_fetched_epoch: int = -1,
    **fields: Any,
) -> dict[str, Any]:
    """Return the fields of a Fetch from an offset of each (topic, partition)."""
    topics: dict[str | UUID, list[dict[str, Any]]] = {}
    for (topic, index), offset in offsets.items():
        wanted = {
            "partition": index,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "partition_max_bytes": partition_max_bytes,
            "last_fetched_epoch": last_fetched_epoch,
        }
        topics.setdefault(topic, []).append(wanted)
    return {
        "max_wait": timedelta(milliseconds=max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "topics": [
            {("topic_id" if isinstance(t, UUID) else "topic"): t, "partitions": wanted}
            for t, wanted in topics.items()
        ],
        "session_epoch": -1,
        "replica_id": -1,
        **fields,
    }


def new_topic(name: str, partitions: int = 1, **fields: Any) -> dict[str, Any]:
    """Return one topic of a CreateTopics; ``configs`` are (name, value)."""
    configs = [{"name": k, "value": v} for k, v in fields.pop("configs", ())]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": configs,
        **fields,
    }


# ---- requests of a controller ----


def _from_controller(
    key: tuple[str, int],
    topic_id: UUID | None,
    controller_epoch: int,
    broker_epoch: int,
) -> ControllerRequests:
    return ControllerRequests(
        controller_id=9,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_ids={key[0]: topic_id},
    )


def leader_and_isr(
    key: tuple[str, int],
    *,
    leader: int,
    leader_epoch: int,
    isr: Sequence[int] = (0,),
    replicas: Sequence[int] | None = None,
    topic_id: UUID | None = None,
    controller_epoch: int = 1,
    broker_epoch: int = -1,
    partition_epoch: int | None = None,
    is_kraft: bool = False,
) -> LeaderAndIsrRequest:
    """Return a LeaderAndIsr of one partition."""
    state = LeaderAndIsrPartitionState(
        partition_index=key[1],
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=tuple(isr),
        partition_epoch=leader_epoch if partition_epoch is None else partition_epoch,
        replicas=tuple(isr if replicas is None else replicas),
    )
    requests = _from_controller(key, topic_id, controller_epoch, broker_epoch)
    request = requests.leader_and_isr({key[0]: [state]})
    return dataclasses.replace(request, is_kraft_controller=is_kraft)


def stop_replica(
    key: tuple[str, int],
    *,
    leader_epoch: int,
    delete: bool,
    controller_epoch: int = 1,
    broker_epoch: int = -1,
) -> StopReplicaRequest:
    """Return a StopReplica of one partition."""
    state = StopReplicaPartitionState(
        partition_index=key[1], leader_epoch=leader_epoch, delete_partition=delete
    )
    requests = _from_controller(key, None, controller_epoch, broker_epoch)
    return requests.stop_replica({key[0]: [state]})


def update_metadata(
    key: tuple[str, int],
    *,
    leader: int,
    leader_epoch: int = 5,
    replicas: Sequence[int] = (0, 2),
    brokers: Mapping[int, tuple[str, int]] | None = None,
    topic_id: UUID | None = None,
    controller_epoch: int = 1,
    broker_epoch: int = -1,
) -> UpdateMetadataRequest:
    """Return an UpdateMetadata of one partition and of live brokers."""
    state = UpdateMetadataPartitionState(
        partition_index=key[1],
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=tuple(replicas),
        zk_version=leader_epoch,
        replicas=tuple(replicas),
    )
    live = [
        UpdateMetadataBroker(
            id=broker,
            endpoints=(
                UpdateMetadataEndpoint(
                    port=port, host=host, listener="PLAINTEXT", security_protocol=0
                ),
            ),
        )
        for broker, (host, port) in (brokers or {}).items()
    ]
    requests = _from_controller(key, topic_id, controller_epoch, broker_epoch)
    return requests.update_metadata({key[0]: [state]}, live)
