"""LeaderAndIsr (4), versions 0-7: the controller assigns leaders, ISRs and replicas.

Version 1 adds is_new, 2 the broker epoch and partitions grouped by topic, 3 the
replicas being added and removed (KIP-455), 4 is flexible. Version 5 adds topic ids and
the request's type (KIP-516) and groups the answer by topic id, 6 the leader recovery
state (KIP-704), 7 whether a KRaft controller sent it (KIP-866). Follows Kafka 3.9's
``LeaderAndIsrRequest.json`` and ``LeaderAndIsrResponse.json``.

The classes have one form for all versions; fields missing in a version have Kafka's
defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any, ClassVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.message import AnyRequest
from broker.protocol.schemas.convert import (
    Stepping,
    convert,
    converting,
    converting_all,
    grouping,
)
from broker.protocol.schemas.message import (
    ControllerMessage,
    Int8,
    Int32,
    Int64,
    Versioned,
    since,
    until,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState:
    """The controller's view of one partition; ``partition_epoch`` is its zkVersion."""

    topic_name: Annotated[str, until(1)] = ""
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: tuple[Int32, ...]
    partition_epoch: Int32
    replicas: tuple[Int32, ...]
    adding_replicas: Annotated[tuple[Int32, ...], since(3)] = ()
    removing_replicas: Annotated[tuple[Int32, ...], since(3)] = ()
    is_new: Annotated[bool, since(1)] = False
    leader_recovery_state: Annotated[Int8, since(6)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState:
    """The partitions of one topic; ``topic_id`` is ``None`` before version 5."""

    topic_name: str
    topic_id: Annotated[UUID | None, since(5)] = None
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader:
    """Address of a leader."""

    broker_id: Int32
    host_name: str
    port: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(ControllerMessage, AnyRequest["LeaderAndIsrResponse"]):
    """The whole request; ``type`` is 0 unknown, 1 incremental, 2 full."""

    api_key: ClassVar = ApiKey.LEADER_AND_ISR
    last_version: ClassVar = 7
    kind: ClassVar = EntityType.request

    controller_id: Int32
    is_kraft_controller: Annotated[bool, since(7)] = False
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, since(2)] = -1
    type: Annotated[Int8, since(5)] = 0
    ungrouped_partition_states: Annotated[
        tuple[LeaderAndIsrPartitionState, ...], until(1)
    ] = ()
    topic_states: Annotated[tuple[LeaderAndIsrTopicState, ...], since(2)]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = ()

    @classmethod
    def reading(cls, entity: Any) -> Stepping[LeaderAndIsrRequest]:
        """Convert as `from_wire` does, in steps: partitions are grouped by topic."""
        if entity.__version__ >= 2:
            return (yield from converting(entity, cls))
        topic_states = []
        numbers = count(1)
        for name, states in (yield from grouping(entity.ungrouped_partition_states)):
            converted = yield from converting_all(
                states, LeaderAndIsrPartitionState, numbers, topic_name=""
            )
            topic_states.append(
                LeaderAndIsrTopicState(topic_name=name, partition_states=converted)
            )
        return (
            yield from converting(
                entity,
                cls,
                ungrouped_partition_states=(),
                topic_states=tuple(topic_states),
            )
        )

    def writing(self, version: int) -> Stepping[Versioned]:
        """Convert as `to_wire` does, in steps."""
        message = self
        if version < 2:
            ungrouped = tuple(
                replace(state, topic_name=topic.topic_name)
                for topic in self.topic_states
                for state in topic.partition_states
            )
            message = replace(self, ungrouped_partition_states=ungrouped)
        return (yield from ControllerMessage.writing(message, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError:
    """The outcome of one partition, by topic name before version 5, then by id."""

    topic_name: Annotated[str | None, until(4)]
    topic_id: Annotated[UUID | None, until(-1)]
    partition_index: Int32
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError:
    """The outcomes of the partitions of one topic, as version 5 groups them."""

    topic_id: UUID | None
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(ControllerMessage):
    """The whole response, with its errors in ``partition_errors`` in all versions."""

    api_key: ClassVar = ApiKey.LEADER_AND_ISR
    last_version: ClassVar = 7
    kind: ClassVar = EntityType.response

    error_code: ErrorCode
    partition_errors: Annotated[tuple[LeaderAndIsrPartitionError, ...], until(4)] = ()
    topics: Annotated[tuple[LeaderAndIsrTopicError, ...], since(5)] = ()

    @classmethod
    def from_wire(cls, entity: Any) -> LeaderAndIsrResponse:
        """Return the response of ``entity``, of any version."""
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

    def writing(self, version: int) -> Stepping[Versioned]:
        """Convert as `to_wire` does, in steps."""
        message = self
        if version >= 5:
            groups = yield from grouping(self.partition_errors, by="topic_id")
            topics = tuple(
                LeaderAndIsrTopicError(
                    topic_id=topic_id, partition_errors=tuple(errors)
                )
                for topic_id, errors in groups
            )
            message = replace(self, topics=topics)
        return (yield from ControllerMessage.writing(message, version))
