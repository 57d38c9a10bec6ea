"""The records of consumer groups in ``__consumer_offsets``, in Kafka 4.4's format.

A record's key begins with its kind: 3 is a group's epoch, 5 a member's metadata, 6 the
epoch of the target, 7 a member's target, 8 a member's assignment, 16 the topics that
match a regular expression. Kind 4, topics with their partitions, was written before
Kafka 4.1; this broker only deletes it. All versions of values are flexible.

Format: ``group-coordinator/src/main/resources/common/message/*.json`` in Kafka's tree.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from broker.groups.consumer.assignors import Assignment
from broker.groups.consumer.members import (
    ClassicProtocols,
    ConsumerMember,
    Held,
    MemberState,
)
from broker.groups.state.group_messages import GroupProtocol
from broker.shards.effects import Record
from broker.shards.record_fields import (
    RecordReader,
    UnreadableRecord,
    classic_string,
    compact_array,
    compact_bytes,
    compact_int32s,
    compact_string,
    tagged_fields,
)


class Kind(enum.IntEnum):
    """The kinds of records; the values are the versions of their keys."""

    EPOCH = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


KINDS: Final = frozenset(Kind)
# The first byte of a struct in a tagged field.
_NULL: Final = b"\0"
_NOT_NULL: Final = b"\1"
_OF_ONE: Final = frozenset({Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.REGEX})


class ConsumerKey(NamedTuple):
    """The key of a record; ``name`` is a member's id or a regular expression."""

    kind: Kind
    group_id: str
    name: str = ""


class EpochValue(NamedTuple):
    """The epoch of a group, and the hash of its topics."""

    epoch: int
    topics_hash: int


class TargetEpochValue(NamedTuple):
    """The epoch of a target, and the time of its computation."""

    epoch: int
    made_ms: int


class ResolvedRegex(NamedTuple):
    """The topics that matched a regular expression at a time.

    ``version`` counts the changes of the set of all topics.
    """

    topics: frozenset[str]
    version: int
    resolved_ms: int


# ---- writing ------------------------------------------------------------------------


def epoch_record(group_id: str, value: EpochValue) -> Record:
    """Return the record of a group's epoch."""
    tags = [(0, struct.pack(">q", value.topics_hash))] if value.topics_hash else []
    return _record(
        ConsumerKey(Kind.EPOCH, group_id),
        struct.pack(">i", value.epoch) + tagged_fields(tags),
    )


def member_record(group_id: str, member: ConsumerMember) -> Record:
    """Return the record of a member's metadata."""
    classic = _NULL if member.classic is None else _classic(member.classic)
    return _record(
        ConsumerKey(Kind.MEMBER, group_id, member.member_id),
        b"".join(
            (
                compact_string(member.instance_id),
                compact_string(member.rack_id),
                compact_string(member.client_id),
                compact_string(member.client_host),
                compact_array([compact_string(it) for it in sorted(member.topics)]),
                compact_string(member.regex),
                struct.pack(">i", member.rebalance_timeout_ms),
                compact_string(member.assignor),
                tagged_fields([(0, classic)]),
            )
        ),
    )


def _classic(classic: ClassicProtocols) -> bytes:
    protocols = [
        compact_string(name) + compact_bytes(metadata) + tagged_fields()
        for name, metadata in classic.protocols
    ]
    return b"".join(
        (
            _NOT_NULL,
            struct.pack(">i", classic.session_timeout_ms),
            compact_array(protocols),
            tagged_fields(),
        )
    )


def target_epoch_record(group_id: str, value: TargetEpochValue) -> Record:
    """Return the record of a target's epoch."""
    tags = [(0, struct.pack(">q", value.made_ms))] if value.made_ms else []
    return _record(
        ConsumerKey(Kind.TARGET_EPOCH, group_id),
        struct.pack(">i", value.epoch) + tagged_fields(tags),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> Record:
    """Return the record of a member's target."""
    topics = [
        topic_id.bytes + compact_int32s(sorted(partitions)) + tagged_fields()
        for topic_id, partitions in sorted(target.items())
    ]
    return _record(
        ConsumerKey(Kind.TARGET, group_id, member_id),
        compact_array(topics) + tagged_fields(),
    )


def current_record(group_id: str, member: ConsumerMember) -> Record:
    """Return the record of a member's epoch and partitions."""
    return _record(
        ConsumerKey(Kind.CURRENT, group_id, member.member_id),
        b"".join(
            (
                struct.pack(
                    ">iib", member.epoch, member.previous_epoch, member.state.value
                ),
                _held(member.assigned),
                _held(member.revoking),
                tagged_fields(),
            )
        ),
    )


def _held(held: Held) -> bytes:
    topics = []
    for topic_id, epochs in sorted(held.items()):
        partitions = sorted(epochs)
        in_order = compact_int32s([epochs[it] for it in partitions])
        topics.append(
            topic_id.bytes + compact_int32s(partitions) + tagged_fields([(0, in_order)])
        )
    return compact_array(topics)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Record:
    """Return the record of the topics that match a regular expression."""
    topics = [compact_string(topic) for topic in sorted(resolved.topics)]
    times = struct.pack(">qq", resolved.version, resolved.resolved_ms)
    return _record(
        ConsumerKey(Kind.REGEX, group_id, regex),
        compact_array(topics) + times + tagged_fields(),
    )


def tombstone(kind: Kind, group_id: str, name: str = "") -> Record:
    """Return the record that deletes another."""
    return Record(_key(ConsumerKey(kind, group_id, name)), None)


def _record(key: ConsumerKey, fields: bytes) -> Record:
    return Record(_key(key), b"\0\0" + fields)


def _key(key: ConsumerKey) -> bytes:
    name = classic_string(key.name) if key.kind in _OF_ONE else b""
    return struct.pack(">h", key.kind) + classic_string(key.group_id) + name


# ---- reading ------------------------------------------------------------------------


def read_consumer_key(data: bytes) -> ConsumerKey | None:
    """Return the parsed key; None: not the key of a consumer group's record."""
    reader = RecordReader(data)
    version = reader.int16()
    if version not in KINDS:
        return None
    kind = Kind(version)
    group_id = reader.string()
    return ConsumerKey(kind, group_id, reader.string() if kind in _OF_ONE else "")


def _reader(data: bytes) -> RecordReader:
    reader = RecordReader(data)
    reader.value_version(0, 0)
    return reader


def read_epoch(data: bytes) -> EpochValue:
    """Return a group's epoch."""
    reader = _reader(data)
    epoch = reader.int32()
    return EpochValue(epoch, _long_in(reader.tags()))


def read_target_epoch(data: bytes) -> TargetEpochValue:
    """Return a target's epoch."""
    reader = _reader(data)
    epoch = reader.int32()
    return TargetEpochValue(epoch, _long_in(reader.tags()))


def _long_in(tags: Mapping[int, bytes]) -> int:
    return RecordReader(tags[0]).int64() if 0 in tags else 0


def read_member(member_id: str, data: bytes) -> ConsumerMember:
    """Return a member without its assignment."""
    reader = _reader(data)
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics = frozenset(reader.string() for _ in range(reader.length()))
    regex = reader.nullable_string()
    rebalance_timeout_ms = reader.int32()
    assignor = reader.nullable_string()
    tags = reader.tags()
    return ConsumerMember(
        member_id=member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        topics=topics,
        regex=regex or "",
        assignor=assignor,
        classic=_read_classic(tags[0]) if 0 in tags else None,
    )


def _read_classic(data: bytes) -> ClassicProtocols | None:
    reader = RecordReader(data, flexible=True)
    if reader.int8() != 1:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.length()):
        protocols.append(GroupProtocol(reader.string(), reader.blob()))
        reader.tags()
    if not protocols:
        raise UnreadableRecord("found a classic member without protocols")
    return ClassicProtocols(
        session_timeout_ms=session_timeout_ms, protocols=tuple(protocols)
    )


def read_target(data: bytes) -> Assignment:
    """Return a member's target."""
    reader = _reader(data)
    found: dict[UUID, frozenset[int]] = {}
    for _ in range(reader.length()):
        topic_id, partitions = reader.uuid(), reader.int32s()
        reader.tags()
        found[topic_id] = frozenset(partitions)
    return found


class CurrentValue(NamedTuple):
    """A member's epoch and partitions as stored in the log."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Held
    revoking: Held


def read_current(data: bytes) -> CurrentValue:
    """Return a member's epoch and partitions."""
    reader = _reader(data)
    epoch, previous_epoch, number = reader.int32(), reader.int32(), reader.int8()
    try:
        state = MemberState(number)
    except ValueError:
        state = MemberState.UNKNOWN
    assigned, revoking = _read_held(reader, epoch), _read_held(reader, epoch)
    return CurrentValue(epoch, previous_epoch, state, assigned, revoking)


def _read_held(reader: RecordReader, member_epoch: int) -> Held:
    """Return partitions with their epochs; old records have the member's epoch only."""
    found: dict[UUID, Mapping[int, int]] = {}
    for _ in range(reader.length()):
        topic_id, partitions = reader.uuid(), reader.int32s()
        tags = reader.tags()
        epochs: tuple[int, ...] = (member_epoch,) * len(partitions)
        if 0 in tags:
            epochs = RecordReader(tags[0], flexible=True).int32s()
        if len(epochs) != len(partitions):
            raise UnreadableRecord(
                f"found {len(epochs)} epochs of {len(partitions)} partitions"
            )
        found[topic_id] = dict(zip(partitions, epochs, strict=True))
    return found


def read_regex(data: bytes) -> ResolvedRegex:
    """Return the topics that match a regular expression."""
    reader = _reader(data)
    topics = frozenset(reader.string() for _ in range(reader.length()))
    return ResolvedRegex(topics, reader.int64(), reader.int64())
