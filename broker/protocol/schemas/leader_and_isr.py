"""LeaderAndIsr (4), versions 0-7: the controller names leaders, ISRs and replicas.

Version 1 adds is_new, 2 the broker epoch and partitions grouped by topic, 3 the
replicas being added and removed (KIP-455), 4 is flexible, 5 adds topic ids and the
request's type (KIP-516) and groups the answer by topic id, 6 the leader recovery state
(KIP-704), 7 whether a KRaft controller sent it (KIP-866). Follows Kafka 3.9's
``LeaderAndIsrRequest.json`` and ``LeaderAndIsrResponse.json``.

The classes are one shape for all versions; fields that a version lacks have the
defaults that Kafka gives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from broker.protocol.api_keys import ApiKey
from broker.protocol.schemas.convert import (
    Stepping,
    convert,
    converting,
    converting_all,
    drained,
    grouping,
)
from broker.protocol.schemas.message import (
    Field,
    Message,
    Struct,
    Versioned,
    entity_type,
    nested_type,
)

_PARTITION_STATE: Final = Struct(
    name="LeaderAndIsrPartitionState",
    fields=(
        Field(name="topic_name", type="topicName", until=1),
        Field(name="partition_index", type="int32"),
        Field(name="controller_epoch", type="int32"),
        Field(name="leader", type="brokerId"),
        Field(name="leader_epoch", type="int32"),
        Field(name="isr", type="brokerId", array=True),
        Field(name="partition_epoch", type="int32"),
        Field(name="replicas", type="brokerId", array=True),
        Field(name="adding_replicas", type="brokerId", array=True, since=3),
        Field(name="removing_replicas", type="brokerId", array=True, since=3),
        Field(name="is_new", type="bool", since=1, default=False),
        Field(name="leader_recovery_state", type="int8", since=6, default=0),
    ),
)
_TOPIC_STATE: Final = Struct(
    name="LeaderAndIsrTopicState",
    fields=(
        Field(name="topic_name", type="topicName"),
        Field(name="topic_id", type="uuid", since=5),
        Field(name="partition_states", type=_PARTITION_STATE, array=True),
    ),
)
_LIVE_LEADER: Final = Struct(
    name="LeaderAndIsrLiveLeader",
    fields=(
        Field(name="broker_id", type="brokerId"),
        Field(name="host_name", type="string"),
        Field(name="port", type="int32"),
    ),
)
REQUEST: Final = Message(
    api_key=ApiKey.LEADER_AND_ISR,
    kind=EntityType.request,
    last_version=7,
    body=Struct(
        name="LeaderAndIsrRequest",
        fields=(
            Field(name="controller_id", type="brokerId"),
            Field(name="is_kraft_controller", type="bool", since=7, default=False),
            Field(name="controller_epoch", type="int32"),
            Field(name="broker_epoch", type="int64", since=2, default=-1),
            Field(name="type", type="int8", since=5),
            Field(
                name="ungrouped_partition_states",
                type=_PARTITION_STATE,
                array=True,
                until=1,
            ),
            Field(name="topic_states", type=_TOPIC_STATE, array=True, since=2),
            Field(name="live_leaders", type=_LIVE_LEADER, array=True),
        ),
    ),
)
_PARTITION_ERROR: Final = Struct(
    name="LeaderAndIsrPartitionError",
    fields=(
        Field(name="topic_name", type="topicName", until=4),
        Field(name="partition_index", type="int32"),
        Field(name="error_code", type="errorCode"),
    ),
)
_TOPIC_ERROR: Final = Struct(
    name="LeaderAndIsrTopicError",
    fields=(
        Field(name="topic_id", type="uuid"),
        Field(name="partition_errors", type=_PARTITION_ERROR, array=True),
    ),
)
RESPONSE: Final = Message(
    api_key=ApiKey.LEADER_AND_ISR,
    kind=EntityType.response,
    last_version=7,
    body=Struct(
        name="LeaderAndIsrResponse",
        fields=(
            Field(name="error_code", type="errorCode"),
            Field(name="partition_errors", type=_PARTITION_ERROR, array=True, until=4),
            Field(name="topics", type=_TOPIC_ERROR, array=True, since=5),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState:
    """The controller's view of one partition; ``partition_epoch`` is its zkVersion."""

    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    is_new: bool = False
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState:
    """The partitions of one topic; ``topic_id`` is ``None`` before version 5."""

    topic_name: str
    topic_id: UUID | None = None
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader:
    """Where a leader is reached."""

    broker_id: int
    host_name: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """The whole request; ``type`` is 0 unknown, 1 incremental, 2 full."""

    controller_id: int
    is_kraft_controller: bool = False
    controller_epoch: int
    broker_epoch: int = -1
    type: int = 0
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = ()

    @classmethod
    def from_wire(cls, entity: Any) -> LeaderAndIsrRequest:
        """Return what ``entity``, of any version, says."""
        return drained(cls.reading(entity))

    @classmethod
    def reading(cls, entity: Any) -> Stepping[LeaderAndIsrRequest]:
        """Do as `from_wire`, in steps."""
        if entity.__version__ >= 2:
            return (yield from converting(entity, cls))
        topic_states = []
        numbers = count(1)
        for name, states in (yield from grouping(entity.ungrouped_partition_states)):
            converted = yield from converting_all(
                states, LeaderAndIsrPartitionState, numbers
            )
            topic_states.append(
                LeaderAndIsrTopicState(topic_name=name, partition_states=converted)
            )
        return (yield from converting(entity, cls, topic_states=tuple(topic_states)))

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` that says this."""
        entity = entity_type(REQUEST, version)
        if version >= 2:
            return convert(self, entity)
        item = nested_type(entity, "ungrouped_partition_states")
        ungrouped = tuple(
            convert(state, item, topic_name=topic.topic_name)
            for topic in self.topic_states
            for state in topic.partition_states
        )
        return convert(self, entity, ungrouped_partition_states=ungrouped)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError:
    """The outcome of one partition: known by name before version 5, then by id."""

    topic_name: str | None
    topic_id: UUID | None
    partition_index: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse:
    """The whole answer."""

    error_code: ErrorCode
    partition_errors: tuple[LeaderAndIsrPartitionError, ...] = ()

    @classmethod
    def from_wire(cls, entity: Any) -> LeaderAndIsrResponse:
        """Return what ``entity``, of any version, says."""
        by_name = entity.partition_errors if entity.__version__ <= 4 else ()
        by_id = entity.topics if entity.__version__ >= 5 else ()
        errors = [
            convert(error, LeaderAndIsrPartitionError, topic_id=None)
            for error in by_name
        ]
        errors += [
            convert(
                error,
                LeaderAndIsrPartitionError,
                topic_name=None,
                topic_id=topic.topic_id,
            )
            for topic in by_id
            for error in topic.partition_errors
        ]
        return cls(error_code=entity.error_code, partition_errors=tuple(errors))

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` that says this."""
        return drained(self.writing(version))

    def writing(self, version: int) -> Stepping[Versioned]:
        """Do as `to_wire`, in steps."""
        entity = entity_type(RESPONSE, version)
        if version <= 4:
            return (yield from converting(self, entity))
        topic_type = nested_type(entity, "topics")
        item = nested_type(topic_type, "partition_errors")
        topics = []
        numbers = count(1)
        by_id = yield from grouping(self.partition_errors, by="topic_id")
        for topic_id, errors in by_id:
            converted = yield from converting_all(errors, item, numbers)
            topics.append(topic_type(topic_id=topic_id, partition_errors=converted))
        return (yield from converting(self, entity, topics=tuple(topics)))
