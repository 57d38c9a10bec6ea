"""StopReplica (5), versions 0-4: the controller has replicas stopped, perhaps deleted.

Version 1 adds the broker epoch and groups partitions by topic, 2 is flexible, 3 adds
a leader epoch per partition and moves the delete flag to each (KIP-570), 4 says
whether a KRaft controller sent it (KIP-866). Follows Kafka 3.9's
``StopReplicaRequest.json`` and ``StopReplicaResponse.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from broker.protocol.api_keys import ApiKey
from broker.protocol.schemas.convert import (
    STEP_ITEMS,
    Stepping,
    convert,
    converting,
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

_PARTITION_V0: Final = Struct(
    name="StopReplicaPartitionV0",
    fields=(
        Field(name="topic_name", type="topicName"),
        Field(name="partition_index", type="int32"),
    ),
)
_TOPIC_V1: Final = Struct(
    name="StopReplicaTopicV1",
    fields=(
        Field(name="name", type="topicName"),
        Field(name="partition_indexes", type="int32", array=True),
    ),
)
_PARTITION_STATE: Final = Struct(
    name="StopReplicaPartitionState",
    fields=(
        Field(name="partition_index", type="int32"),
        Field(name="leader_epoch", type="int32", default=-1),
        Field(name="delete_partition", type="bool"),
    ),
)
_TOPIC_STATE: Final = Struct(
    name="StopReplicaTopicState",
    fields=(
        Field(name="topic_name", type="topicName"),
        Field(name="partition_states", type=_PARTITION_STATE, array=True),
    ),
)
REQUEST: Final = Message(
    api_key=ApiKey.STOP_REPLICA,
    kind=EntityType.request,
    last_version=4,
    body=Struct(
        name="StopReplicaRequest",
        fields=(
            Field(name="controller_id", type="brokerId"),
            Field(name="is_kraft_controller", type="bool", since=4, default=False),
            Field(name="controller_epoch", type="int32"),
            Field(name="broker_epoch", type="int64", since=1, default=-1),
            Field(name="delete_partitions", type="bool", until=2),
            Field(name="ungrouped_partitions", type=_PARTITION_V0, array=True, until=0),
            Field(name="topics", type=_TOPIC_V1, array=True, since=1, until=2),
            Field(name="topic_states", type=_TOPIC_STATE, array=True, since=3),
        ),
    ),
)
_PARTITION_ERROR: Final = Struct(
    name="StopReplicaPartitionError",
    fields=(
        Field(name="topic_name", type="topicName"),
        Field(name="partition_index", type="int32"),
        Field(name="error_code", type="errorCode"),
    ),
)
RESPONSE: Final = Message(
    api_key=ApiKey.STOP_REPLICA,
    kind=EntityType.response,
    last_version=4,
    body=Struct(
        name="StopReplicaResponse",
        fields=(
            Field(name="error_code", type="errorCode"),
            Field(name="partition_errors", type=_PARTITION_ERROR, array=True),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState:
    """One partition; epoch -1 is none known, -2 that the topic is being deleted."""

    partition_index: int
    leader_epoch: int = -1
    delete_partition: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState:
    """The partitions of one topic."""

    topic_name: str
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest:
    """The whole request."""

    controller_id: int
    is_kraft_controller: bool = False
    controller_epoch: int
    broker_epoch: int = -1
    topic_states: tuple[StopReplicaTopicState, ...]

    @classmethod
    def from_wire(cls, entity: Any) -> StopReplicaRequest:
        """Return what ``entity``, of any version, says."""
        return drained(cls.reading(entity))

    @classmethod
    def reading(cls, entity: Any) -> Stepping[StopReplicaRequest]:
        """Do as `from_wire`, in steps."""
        if entity.__version__ >= 3:
            return (yield from converting(entity, cls))
        named: list[tuple[str, Sequence[int]]] = []
        numbers = count(1)
        if entity.__version__ == 0:
            groups = yield from grouping(entity.ungrouped_partitions)
            for name, partitions in groups:
                found: list[int] = []
                for each in partitions:
                    found.append(each.partition_index)
                    if next(numbers) % STEP_ITEMS == 0:
                        yield
                named.append((name, found))
        else:
            named += [(topic.name, topic.partition_indexes) for topic in entity.topics]
        topic_states = []
        for name, indexes in named:
            states = []
            for index in indexes:
                states.append(
                    StopReplicaPartitionState(
                        partition_index=index,
                        delete_partition=entity.delete_partitions,
                    )
                )
                if next(numbers) % STEP_ITEMS == 0:
                    yield
            topic_states.append(
                StopReplicaTopicState(topic_name=name, partition_states=tuple(states))
            )
        return (yield from converting(entity, cls, topic_states=tuple(topic_states)))

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` that says this.

        Before version 3 one flag stands for all partitions: they must agree.
        """
        entity = entity_type(REQUEST, version)
        if version >= 3:
            return convert(self, entity)
        flags = {
            state.delete_partition
            for topic in self.topic_states
            for state in topic.partition_states
        }
        assert len(flags) <= 1, f"version {version} has one delete flag for all"
        field = "ungrouped_partitions" if version == 0 else "topics"
        item = nested_type(entity, field)
        if version == 0:
            items = tuple(
                item(topic_name=topic.topic_name, partition_index=state.partition_index)
                for topic in self.topic_states
                for state in topic.partition_states
            )
        else:
            items = tuple(
                item(
                    name=topic.topic_name,
                    partition_indexes=tuple(
                        state.partition_index for state in topic.partition_states
                    ),
                )
                for topic in self.topic_states
            )
        return convert(self, entity, delete_partitions=True in flags, **{field: items})


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError:
    """The outcome of one partition."""

    topic_name: str
    partition_index: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse:
    """The whole answer."""

    error_code: ErrorCode
    partition_errors: tuple[StopReplicaPartitionError, ...] = ()

    @classmethod
    def from_wire(cls, entity: Any) -> StopReplicaResponse:
        """Return what ``entity``, of any version, says."""
        return convert(entity, cls)

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` that says this."""
        return drained(self.writing(version))

    def writing(self, version: int) -> Stepping[Versioned]:
        """Do as `to_wire`, in steps."""
        return (yield from converting(self, entity_type(RESPONSE, version)))
