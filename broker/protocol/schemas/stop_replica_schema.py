"""StopReplica (5), versions 0-4: the controller stops and possibly deletes replicas.

Version 1 adds the broker epoch and groups partitions by topic, 2 is flexible, 3 adds a
leader epoch and the delete flag per partition (KIP-570), 4 states whether a KRaft
controller sent it (KIP-866). Follows Kafka 3.9's
``StopReplicaRequest.json`` and ``StopReplicaResponse.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.message import AnyRequest
from broker.protocol.schemas.convert import (
    STEP_ITEMS,
    Stepping,
    converting,
    grouping,
)
from broker.protocol.schemas.message import (
    ControllerMessage,
    Int32,
    Int64,
    Versioned,
    Versions,
    since,
    until,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionV0:
    """A partition in the form of version 0."""

    topic_name: str
    partition_index: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicV1:
    """The partitions of a topic in the form of versions 1 and 2."""

    name: str
    partition_indexes: tuple[Int32, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState:
    """A partition; epoch -1: unknown, -2: the topic is being deleted."""

    partition_index: Int32
    leader_epoch: Int32 = -1
    delete_partition: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState:
    """The partitions of one topic."""

    topic_name: str
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(ControllerMessage, AnyRequest["StopReplicaResponse"]):
    """The whole request, with its partitions in ``topic_states`` in all versions."""

    api_key: ClassVar = ApiKey.STOP_REPLICA
    last_version: ClassVar = 4
    kind: ClassVar = EntityType.request

    controller_id: Int32
    is_kraft_controller: Annotated[bool, since(4)] = False
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, since(1)] = -1
    delete_partitions: Annotated[bool, until(2)] = False
    ungrouped_partitions: Annotated[tuple[StopReplicaPartitionV0, ...], until(0)] = ()
    topics: Annotated[tuple[StopReplicaTopicV1, ...], Versions(1, 2)] = ()
    topic_states: Annotated[tuple[StopReplicaTopicState, ...], since(3)]

    @classmethod
    def reading(cls, entity: Any) -> Stepping[StopReplicaRequest]:
        """Convert as `from_wire` does, in steps."""
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
        return (
            yield from converting(
                entity,
                cls,
                delete_partitions=False,
                ungrouped_partitions=(),
                topics=(),
                topic_states=tuple(topic_states),
            )
        )

    def writing(self, version: int) -> Stepping[Versioned]:
        """Convert as `to_wire` does, in steps.

        Before version 3 there is one flag for all partitions, which must be equal.
        """
        message = self
        if version < 3:
            flags = {
                state.delete_partition
                for topic in self.topic_states
                for state in topic.partition_states
            }
            assert len(flags) <= 1, f"version {version} has one delete flag for all"
            message = replace(
                self,
                delete_partitions=True in flags,
                ungrouped_partitions=tuple(
                    StopReplicaPartitionV0(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                    )
                    for topic in self.topic_states
                    for state in topic.partition_states
                ),
                topics=tuple(
                    StopReplicaTopicV1(
                        name=topic.topic_name,
                        partition_indexes=tuple(
                            state.partition_index for state in topic.partition_states
                        ),
                    )
                    for topic in self.topic_states
                ),
            )
        return (yield from ControllerMessage.writing(message, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError:
    """The outcome of one partition."""

    topic_name: str
    partition_index: Int32
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(ControllerMessage):
    """The whole response."""

    api_key: ClassVar = ApiKey.STOP_REPLICA
    last_version: ClassVar = 4
    kind: ClassVar = EntityType.response

    error_code: ErrorCode
    partition_errors: tuple[StopReplicaPartitionError, ...] = ()
