"""The records of ``__consumer_offsets``, in Kafka's own format.

A record's key begins with its kind: versions 0 and 1 are an offset
(``OffsetCommitKey``), 2 is a group (``GroupMetadataKey``). Other versions are read by
``consumer_records``, or belong to unsupported protocols and are skipped, as in Kafka
after a downgrade. A null value is a tombstone. Values are read in versions 0 to 4 (4 is
flexible: compact sizes, tagged fields) and written in the version that Kafka 3.9
writes: 3, and 1 for an offset with an expiry of its own.

Format: ``group-coordinator/src/main/resources/common/message/*.json`` in Kafka's tree.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.groups.state.group_messages import OffsetCommit
from broker.shards.effects import Record
from broker.shards.record_fields import (
    RecordReader,
    UnreadableRecord,
    classic_string,
)

OFFSET_KEY_VERSIONS: Final = (0, 1)
GROUP_KEY_VERSION: Final = 2
# Length of the partition, the last field of an offset's key.
PARTITION_BYTES: Final = 4
# Members that are read, built, or removed per step.
MEMBERS_PER_STEP: Final = 48
# An offset of version 3 without metadata, as nearly all commits.
_PLAIN_COMMIT: Final = struct.Struct(">hqihq")
_PLAIN_VERSION: Final = b"\0\3"
_NEWEST_VALUE: Final = 4
_FLEXIBLE_FROM: Final = 4


class OffsetKey(NamedTuple):
    """The key of a group's offset in a partition."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member as stored in the log."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """A group's generation as stored in the log; offsets have their own records."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    since_ms: int
    members: tuple[MemberValue, ...]


# ---- writing ------------------------------------------------------------------------


def offset_record(key: OffsetKey, commit: OffsetCommit) -> Record:
    """Return the record of a commit."""
    metadata = classic_string(commit.metadata)
    if commit.expire_ms >= 0:
        times = struct.pack(">qq", commit.commit_ms, commit.expire_ms)
        value = struct.pack(">hq", 1, commit.offset) + metadata + times
    else:
        head = struct.pack(">hqi", 3, commit.offset, commit.leader_epoch)
        value = head + metadata + struct.pack(">q", commit.commit_ms)
    return Record(_offset_key(key), value)


def offset_tombstone(key: OffsetKey) -> Record:
    """Return the record that deletes an offset."""
    return Record(_offset_key(key), None)


def group_record(
    group_id: str, value: GroupValue, rows: Sequence[tuple[bytes, bytes]] | None = None
) -> Record:
    """Return the record of a group's generation.

    ``rows`` has for each member its `member_row` and its assignment.
    """
    if rows is None:
        rows = [(member_row(member), member.assignment) for member in value.members]
    parts = [
        struct.pack(">h", 3),
        classic_string(value.protocol_type),
        struct.pack(">i", value.generation),
        classic_string(value.protocol_name),
        classic_string(value.leader),
        struct.pack(">qi", value.since_ms, len(rows)),
    ]
    size = struct.Struct(">i").pack
    for row, assignment in rows:
        parts += (row, size(len(assignment)), assignment)
    return Record(_group_key(group_id), b"".join(parts))


def member_row(member: MemberValue) -> bytes:
    """Return the bytes of a member in a group's record before its assignment."""
    return b"".join(
        (
            classic_string(member.member_id),
            classic_string(member.instance_id),
            classic_string(member.client_id),
            classic_string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(member.subscription),
        )
    )


def group_tombstone(group_id: str) -> Record:
    """Return the record that deletes a group."""
    return Record(_group_key(group_id), None)


def _offset_key(key: OffsetKey) -> bytes:
    names = classic_string(key.group_id) + classic_string(key.topic)
    return b"\0\1" + names + struct.pack(">i", key.partition)


def _group_key(group_id: str) -> bytes:
    return b"\0\2" + classic_string(group_id)


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


# ---- reading ------------------------------------------------------------------------


def read_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Return the parsed key; None: a record of another kind."""
    reader = RecordReader(data)
    version = reader.int16()
    if version in OFFSET_KEY_VERSIONS:
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    return None


def shared_part(data: bytes, key: OffsetKey) -> bytes | None:
    """Return the part of an offset's key before the partition.

    All keys of a group's topic share this part. None: the partition is not last.
    """
    shared = data[:-PARTITION_BYTES]
    return (
        shared
        if shared[2:] == classic_string(key.group_id) + classic_string(key.topic)
        else None
    )


def partition_in(data: bytes) -> int:
    """Return the partition from an offset's key in which it is the last field."""
    return int.from_bytes(data[-PARTITION_BYTES:], "big", signed=True)


def is_plain_commit(value: bytes) -> bool:
    """Return whether a value has version 3 and no metadata, the most common form."""
    return (
        len(value) == _PLAIN_COMMIT.size
        and value[:2] == _PLAIN_VERSION
        # The length of the metadata.
        and value[14:16] == b"\0\0"
    )


def read_offset(data: bytes) -> OffsetCommit:
    """Return the commit in a value of versions 0 to 4."""
    if is_plain_commit(data):
        _, offset, leader_epoch, _, commit_ms = _PLAIN_COMMIT.unpack(data)
        return OffsetCommit(offset, leader_epoch, "", commit_ms)
    reader = RecordReader(data)
    version = reader.value_version(_NEWEST_VALUE, _FLEXIBLE_FROM)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == 1 else -1
    reader.tags()
    return OffsetCommit(offset, leader_epoch, metadata, commit_ms, expire_ms)


def read_group(data: bytes) -> GroupValue:
    """Return the generation in a value of versions 0 to 4."""
    reading = reading_group(data)
    try:
        while True:
            next(reading)
    except StopIteration as done:
        value: GroupValue = done.value
        return value


def reading_group(data: bytes) -> Generator[None, None, GroupValue]:
    """Return the generation in a value, in steps of some members."""
    reader = RecordReader(data)
    version = reader.value_version(_NEWEST_VALUE, _FLEXIBLE_FROM)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol_name, leader = (
        reader.nullable_string(),
        reader.nullable_string(),
    )
    since_ms = reader.int64() if version >= 2 else -1
    members: dict[str, MemberValue] = {}
    instances: set[str] = set()
    for number in range(reader.length()):
        member = _member(reader, version)
        if member.member_id in members or member.instance_id in instances:
            raise UnreadableRecord("found two members of one id, expected each once")
        members[member.member_id] = member
        if member.instance_id is not None:
            instances.add(member.instance_id)
        if number % MEMBERS_PER_STEP == MEMBERS_PER_STEP - 1:
            yield
    reader.tags()
    return GroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol_name=protocol_name,
        leader=leader,
        since_ms=since_ms,
        members=tuple(members.values()),
    )


def _member(reader: RecordReader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tags()
    return MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms
        ),
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )
