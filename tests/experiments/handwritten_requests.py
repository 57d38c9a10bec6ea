"""The requests of a load, encoded by hand with ``struct``: the expected bytes.

One fixed version per API: the newest that is not flexible, if there is one. The module
is independent of the schemas that encode the load.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, LEADER_AND_ISR = 0, 1, 2, 3, 4
UPDATE_METADATA, OFFSET_COMMIT, FIND_COORDINATOR, CREATE_TOPICS = 6, 8, 10, 19
CONSUMER_GROUP_HEARTBEAT = 68

VERSIONS = {
    PRODUCE: 8,
    FETCH: 11,
    LIST_OFFSETS: 5,
    METADATA: 8,
    LEADER_AND_ISR: 3,
    UPDATE_METADATA: 5,
    OFFSET_COMMIT: 7,
    FIND_COORDINATOR: 2,
    CREATE_TOPICS: 4,
    CONSUMER_GROUP_HEARTBEAT: 0,
}

_HEAD = struct.Struct(">ihhi")


class Endpoint(NamedTuple):
    """A listener of a broker, as UpdateMetadata announces it."""

    host: str
    port: int
    listener: str


class Leadership(NamedTuple):
    """Partitions of a controller's request, with the broker as sole replica."""

    topic: str
    partitions: Sequence[int]
    controller_epoch: int
    leader_epoch: int
    broker_id: int


def head(api_key: int, correlation_id: int, rest_bytes: int) -> bytes:
    """Return a frame's first 12 bytes, size included; ``rest`` follows."""
    size = _HEAD.size - 4 + rest_bytes
    return _HEAD.pack(size, api_key, VERSIONS[api_key], correlation_id)


def rest(client_id: str, body: bytes) -> bytes:
    """Return the part after the head: the client id and the body."""
    return _string(client_id) + body


def produce(topic: str, batches: Iterable[tuple[int, bytes]], acks: int) -> bytes:
    """Return the body of a PRODUCE of ``(partition, record batch)`` to one topic."""
    data = _array(
        struct.pack(">ii", index, len(batch)) + batch for index, batch in batches
    )
    timeout_ms = 30_000
    return struct.pack(">hhi", -1, acks, timeout_ms) + _array([_string(topic) + data])


def fetch(
    topic: str,
    partitions: Iterable[int],
    *,
    partition_max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    replica_id: int = -1,
) -> bytes:
    """Return the body of a FETCH from offset 0, without a session."""
    limits = (replica_id, max_wait_ms, min_bytes, 2**31 - 1)
    wanted = _array(
        struct.pack(">iiqqi", index, -1, 0, -1, partition_max_bytes)
        for index in partitions
    )
    return b"".join(
        (
            struct.pack(">iiiibii", *limits, 0, 0, -1),
            _array([_string(topic) + wanted]),
            _array([]),
            _string(""),
        )
    )


def metadata() -> bytes:
    """Return the body of a METADATA of all topics."""
    return struct.pack(">i???", -1, False, False, False)


def list_offsets(topic: str, partitions: Iterable[int]) -> bytes:
    """Return the body of a LIST_OFFSETS of the latest offsets."""
    wanted = _array(struct.pack(">iiq", index, -1, -1) for index in partitions)
    return struct.pack(">ib", -1, 0) + _array([_string(topic) + wanted])


def leader_and_isr(state: Leadership, endpoint: Endpoint) -> bytes:
    """Return the body of a LEADER_AND_ISR that makes the broker leader."""
    alone = _array([struct.pack(">i", state.broker_id)])
    nobody = _array([])
    partitions = _array(
        b"".join((_leadership(state, index), alone, nobody, nobody, b"\0"))
        for index in state.partitions
    )
    leader = struct.pack(">i", state.broker_id) + _string(endpoint.host)
    leader += struct.pack(">i", endpoint.port)
    return b"".join(
        (
            struct.pack(">iiq", state.broker_id, state.controller_epoch, -1),
            _array([_string(state.topic) + partitions]),
            _array([leader]),
        )
    )


def update_metadata(state: Leadership, endpoint: Endpoint) -> bytes:
    """Return the body of an UPDATE_METADATA that names the broker as leader."""
    alone = _array([struct.pack(">i", state.broker_id)])
    partitions = _array(
        _leadership(state, index) + alone + _array([]) for index in state.partitions
    )
    plaintext = struct.pack(">h", 0)
    port = struct.pack(">i", endpoint.port)
    place = port + _string(endpoint.host) + _string(endpoint.listener) + plaintext
    no_rack = struct.pack(">h", -1)
    return b"".join(
        (
            struct.pack(">iiq", state.broker_id, state.controller_epoch, -1),
            _array([_string(state.topic) + partitions]),
            _array([struct.pack(">i", state.broker_id) + _array([place]) + no_rack]),
        )
    )


def find_coordinator(group: str) -> bytes:
    """Return the body of a FIND_COORDINATOR of a group."""
    return _string(group) + b"\0"


def offset_commit(group: str, topic: str, partitions: Iterable[int]) -> bytes:
    """Return the body of an OFFSET_COMMIT without a member: offset 0, no metadata."""
    offsets = _array(
        struct.pack(">iqi", index, 0, -1) + _string("") for index in partitions
    )
    nobody = struct.pack(">i", -1) + _string("") + struct.pack(">h", -1)
    return _string(group) + nobody + _array([_string(topic) + offsets])


def consumer_group_heartbeat(group: str, member: str, epoch: int) -> bytes:
    """Return the rest of the header and the body of a heartbeat without a change.

    The version is flexible: a tag section ends header and body, a compact string begins
    with its length plus one, and zero encodes null.
    """
    names = b"".join(bytes([len(it) + 1]) + it.encode() for it in (group, member))
    no_instance = no_rack = no_topics = no_assignor = no_partitions = b"\0"
    return b"".join(
        (
            b"\0",
            names,
            struct.pack(">i", epoch),
            no_instance + no_rack,
            struct.pack(">i", -1),
            no_topics + no_assignor + no_partitions,
            b"\0",
        )
    )


def create_topics(topics: Iterable[tuple[str, int]]) -> bytes:
    """Return the body of a CREATE_TOPICS of ``(name, partitions)``, unreplicated."""
    wanted = _array(
        _string(name) + struct.pack(">ih", partitions, 1) + _array([]) + _array([])
        for name, partitions in topics
    )
    return wanted + struct.pack(">i?", 30_000, False)


def record_batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """Return an uncompressed batch (magic 2) of records without keys.

    The same bytes can be sent repeatedly: the broker assigns the base offset, which the
    CRC does not cover.
    """
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    covered = struct.pack(
        ">hiqqqhii",
        0,
        len(values) - 1,
        timestamp_ms,
        timestamp_ms,
        -1,
        -1,
        -1,
        len(values),
    )
    covered += records
    crc = crc32c.crc32c(covered)
    return struct.pack(">qiiBI", 0, len(covered) + 9, -1, 2, crc) + covered


def _leadership(state: Leadership, index: int) -> bytes:
    """Encode the fields with which a partition begins in both controller requests."""
    return b"".join(
        (
            struct.pack(">ii", index, state.controller_epoch),
            struct.pack(">ii", state.broker_id, state.leader_epoch),
            _array([struct.pack(">i", state.broker_id)]),
            struct.pack(">i", state.leader_epoch),
        )
    )


def _record(offset_delta: int, value: bytes) -> bytes:
    content = b"".join(
        (b"\0", _varint(0), _varint(offset_delta), _varint(-1), _varint(len(value)))
    )
    content += value + _varint(0)
    return _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encode a zigzag varint of a record."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return struct.pack(">i", len(encoded)) + b"".join(encoded)
