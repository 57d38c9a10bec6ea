"""The records of ``__consumer_offsets``, in Kafka's own format.

A record's key begins with its kind: versions 0 and 1 are an offset
(``OffsetCommitKey``), 2 is a group (``GroupMetadataKey``); all others belong to group
protocols that are not spoken here and are passed over, as Kafka does after a downgrade.
A null value is a tombstone. Values are read in versions 0 to 4 (4 is flexible: compact
sizes, tagged fields) and written in the version that Kafka 3.9 writes: 3, and 1 for an
offset with an expiry of its own.

Format: ``group-coordinator/src/main/resources/common/message/*.json`` in Kafka's tree.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.groups.state.messages import OffsetCommit
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire.varint import decode_varint
from broker.shards.effects import Record

OFFSET_KEY_VERSIONS: Final = (0, 1)
GROUP_KEY_VERSION: Final = 2
# The last field of an offset's key.
PARTITION_BYTES: Final = 4
# Members that are read, built, or lost in one step.
MEMBERS_PER_STEP: Final = 64
# An offset of version 3 without metadata: nearly all commits are.
_PLAIN_COMMIT: Final = struct.Struct(">hqihq")
_PLAIN_VERSION: Final = b"\0\3"
_NEWEST_VALUE: Final = 4
_FLEXIBLE_FROM: Final = 4
# Rewritten records have a version whose lengths are 16 bits.
_STRING_BYTES_MAX: Final = 32_767


class OffsetKey(NamedTuple):
    """The key of an offset: a group's, in a partition of a topic."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member as the log keeps it."""

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
    """A group's generation as the log keeps it; offsets have records of their own."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    since_ms: int
    members: tuple[MemberValue, ...]


# ---- writing ------------------------------------------------------------------------


def offset_record(key: OffsetKey, commit: OffsetCommit) -> Record:
    """Return the record of a commit."""
    metadata = _string(commit.metadata)
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

    ``rows`` stand for its members: for each its `member_row`, and its assignment.
    """
    if rows is None:
        rows = [(member_row(member), member.assignment) for member in value.members]
    parts = [
        struct.pack(">h", 3),
        _string(value.protocol_type),
        struct.pack(">i", value.generation),
        _string(value.protocol_name),
        _string(value.leader),
        struct.pack(">qi", value.since_ms, len(rows)),
    ]
    size = struct.Struct(">i").pack
    for row, assignment in rows:
        parts += (row, size(len(assignment)), assignment)
    return Record(_group_key(group_id), b"".join(parts))


def member_row(member: MemberValue) -> bytes:
    """Return all that a group's record holds of a member before its assignment."""
    return b"".join(
        (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(member.subscription),
        )
    )


def group_tombstone(group_id: str) -> Record:
    """Return the record that deletes a group."""
    return Record(_group_key(group_id), None)


def _offset_key(key: OffsetKey) -> bytes:
    names = _string(key.group_id) + _string(key.topic)
    return b"\0\1" + names + struct.pack(">i", key.partition)


def _group_key(group_id: str) -> bytes:
    return b"\0\2" + _string(group_id)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


# ---- reading ------------------------------------------------------------------------


class UnreadableRecord(Exception):
    """A record is not in a version, or not of a shape, that this broker knows."""


def read_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Return whose record it is; None: a kind that is passed over."""
    reader = _Reader(data)
    version = reader.int16()
    if version in OFFSET_KEY_VERSIONS:
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    return None


def shared_part(data: bytes, key: OffsetKey) -> bytes | None:
    """Return the part of an offset's key before the partition.

    The keys of all partitions of the topic share it. None: the partition is not last.
    """
    shared = data[:-PARTITION_BYTES]
    return shared if shared[2:] == _string(key.group_id) + _string(key.topic) else None


def partition_in(data: bytes) -> int:
    """Return the partition, where it is last in an offset's key."""
    return int.from_bytes(data[-PARTITION_BYTES:], "big", signed=True)


def is_plain_commit(value: bytes) -> bool:
    """Return whether a value has version 3 and no metadata, the form read here."""
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
    reader = _Reader(data)
    version = reader.value_version()
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
    """Return the same, read some members at a time."""
    reader = _Reader(data)
    version = reader.value_version()
    protocol_type = reader.string()
    generation = reader.int32()
    protocol_name, leader = reader.nullable_string(), reader.nullable_string()
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


def _member(reader: _Reader, version: int) -> MemberValue:
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
        # Version 0 had one timeout for both.
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms
        ),
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


class _Reader:
    """Kafka's primitive types, classic or compact as the value's version says."""

    __slots__ = ("_at", "_data", "_flexible")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._flexible = False

    def value_version(self) -> int:
        version = self.int16()
        if not 0 <= version <= _NEWEST_VALUE:
            raise UnreadableRecord(f"found value version {version}, expected 0 to 4")
        self._flexible = version >= _FLEXIBLE_FROM
        return version

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise UnreadableRecord("found null, expected a string")
        return text

    def nullable_string(self) -> str | None:
        size = self._varint() - 1 if self._flexible else self.int16()
        if size < 0:
            return None
        if size > _STRING_BYTES_MAX:
            raise UnreadableRecord(f"found a string of {size} bytes")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as fault:
            raise UnreadableRecord(str(fault)) from fault

    def blob(self) -> bytes:
        return self._take(self.length())

    def length(self) -> int:
        size = self._varint() - 1 if self._flexible else self.int32()
        if not 0 <= size <= len(self._data):
            raise UnreadableRecord(f"found length {size}, expected 0 or more")
        return size

    def tags(self) -> None:
        """Pass over tagged fields: none is known in these versions."""
        if not self._flexible:
            return
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def _varint(self) -> int:
        try:
            value, self._at = decode_varint(self._data, self._at)
        except (IndexError, MalformedFrame) as fault:
            raise UnreadableRecord(f"found no varint: {fault}") from fault
        return value

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise UnreadableRecord(f"found {len(self._data)} bytes, expected {end}")
        taken = self._data[self._at : end]
        self._at = end
        return taken
