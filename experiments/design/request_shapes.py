"""Requests of a workload: a shape with a few parameters for each API.

All else follows from a shape: the keys of the experiment's file, their checks, the
bytes of a request and the error code of its answer. Shapes are a layer below the load,
because a config is checked against them before anything runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from broker.protocol.messages.message import AnyRequest
from broker.protocol.messages.metadata import MetadataRequest
from broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from broker.requests.classifier import REPLICATION

_LATEST: Final = -1
_CONSUMER: Final = -1
# The epoch of a group's only member after it has joined; new groups begin with 1.
_JOINED: Final = 2
_REBALANCE_TIMEOUT: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Sender, receiver and time of a request.

    ``topic`` is that of the workload's entry, and ``position`` the connection's number
    within the entry, from 0. ``host`` and ``port`` are those of the broker under load.
    ``leader_epoch`` increases with every request of a connection. ``batch`` creates a
    batch from a number of records and their size, in uncompressed bytes.
    """

    topic: str
    position: int
    broker_id: int
    host: str
    port: int
    controller_epoch: int
    leader_epoch: int
    batch: Callable[[int, int], bytes]


def at_least(least: int, default: int) -> Any:
    """Declare a parameter with its lower bound."""
    return field(default=default, metadata={"ge": least})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape(ABC):
    """One request of a workload; its fields are the keys of the experiment's file.

    ``every_request_differs`` means that a connection cannot send the same bytes again.
    A derived class that refuses a combination of parameters raises ``ValueError``.
    """

    every_request_differs: ClassVar[bool] = False

    @property
    def units(self) -> int:
        """The number of parts that the handler processes in one slice each."""
        return 1

    def partitions_needed(self, connections: int) -> int:
        """Return the number of partitions that the entry's topic needs, or 0."""
        return 0

    @property
    def filled_bytes(self) -> int:
        """Number of bytes in each of these partitions before the run."""
        return 0

    @property
    def is_answered(self) -> bool:
        """Whether the broker answers."""
        return True

    @property
    def request_class(self) -> str | None:
        """The class that the broker assigns, if it is not the API's."""
        return None

    def carrying(self, rows: int) -> RequestShape:
        """Return the shape of one request with the content of ``rows`` requests."""
        return self

    def preparation(self, on: Occasion) -> Sequence[AnyRequest[Any]]:
        """Return the requests that a connection needs before its first, in order.

        Topics have been created and filled before.
        """
        return ()

    @abstractmethod
    def body(self, on: Occasion) -> AnyRequest[Any]:
        """Return the request, with the fields of its API version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsShape(RequestShape):
    """A request that names ``partitions`` partitions."""

    partitions: int = at_least(1, 1)

    @property
    def units(self) -> int:
        """The number of partitions."""
        return self.partitions

    def partitions_needed(self, connections: int) -> int:
        """Return the partitions that all connections name."""
        return self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPartitions(PartitionsShape):
    """Partitions that only one connection's controller requests name.

    Each request increases the leader epoch by one, so each of them changes state: every
    scheduler keeps the order of a connection. The broker stays the leader and the only
    replica, which keeps the rest of the load valid.
    """

    every_request_differs: ClassVar[bool] = True

    def partitions_needed(self, connections: int) -> int:
        """Return the partitions of all connections."""
        return self.partitions * connections

    def indexes(self, on: Occasion) -> range:
        """Return the partitions that the connection owns."""
        first = on.position * self.partitions
        return range(first, first + self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceShape(PartitionsShape):
    """PRODUCE of one batch to each of ``partitions`` of the entry's topic.

    The entry's connections are spread evenly over the topic's partitions.
    """

    topic_partitions: int = at_least(1, 1)
    records: int = at_least(1, 1)
    record_bytes: int = at_least(0, 1024)
    acks: Literal[0, 1, -1] = 1

    def __post_init__(self) -> None:
        if self.partitions > self.topic_partitions:
            raise ValueError(f"partitions = {self.partitions} exceeds topic_partitions")

    def partitions_needed(self, connections: int) -> int:
        """Return the partitions of the topic."""
        return self.topic_partitions

    @property
    def is_answered(self) -> bool:
        """Whether the broker answers."""
        return self.acks != 0

    def carrying(self, rows: int) -> ProduceShape:
        """Return the same shape with the records of ``rows`` requests per batch."""
        return replace(self, records=self.records * rows)

    def body(self, on: Occasion) -> ProduceRequest:
        """Return a request to the connection's share of the topic."""
        batch = on.batch(self.records, self.record_bytes)
        first = on.position * self.partitions
        indexes = sorted(
            (first + offset) % self.topic_partitions
            for offset in range(self.partitions)
        )
        data = [PartitionProduceData(index=index, records=batch) for index in indexes]
        return ProduceRequest(
            acks=self.acks,
            timeout=timedelta(seconds=30),
            topic_data=[TopicProduceData(name=on.topic, partition_data=data)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchShape(PartitionsShape):
    """FETCH from offset 0 of ``partitions`` partitions, filled before the run.

    ``max_wait_ms`` above zero parks the request while fewer than ``min_bytes`` are
    available. With ``follower`` another broker sends it, whose replicas are not in
    sync: the class is replication.
    """

    partition_max_bytes: int = at_least(1, 16384)
    max_wait_ms: int = at_least(0, 0)
    min_bytes: int = at_least(0, 0)
    follower: bool = False

    @property
    def filled_bytes(self) -> int:
        """Number of bytes in each of these partitions before the run."""
        return self.partition_max_bytes

    @property
    def request_class(self) -> str | None:
        """Replication, if a follower sends it."""
        return REPLICATION if self.follower else None

    def preparation(self, on: Occasion) -> Sequence[AnyRequest[Any]]:
        """Return the controller's request that adds a follower to the partitions."""
        if not self.follower or on.position:
            return ()
        replicas = (on.broker_id, on.broker_id + 1)
        return (leader_and_isr(on, range(self.partitions), replicas),)

    def body(self, on: Occasion) -> FetchRequest:
        """Return a request without a session."""
        wanted = [
            FetchPartition(
                partition=index,
                fetch_offset=0,
                partition_max_bytes=self.partition_max_bytes,
            )
            for index in range(self.partitions)
        ]
        return FetchRequest(
            replica_id=on.broker_id + 1 if self.follower else _CONSUMER,
            max_wait=timedelta(milliseconds=self.max_wait_ms),
            min_bytes=self.min_bytes,
            topics=[FetchTopic(topic=on.topic, partitions=wanted)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataShape(RequestShape):
    """METADATA of every topic."""

    def body(self, on: Occasion) -> MetadataRequest:
        """Return a request that creates no topic."""
        return MetadataRequest(
            topics=None,
            allow_auto_topic_creation=False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsShape(PartitionsShape):
    """LIST_OFFSETS (latest) of ``partitions`` partitions of the entry's topic."""

    def body(self, on: Occasion) -> ListOffsetsRequest:
        """Return a consumer's request."""
        wanted = [
            ListOffsetsPartition(
                partition_index=index, current_leader_epoch=-1, timestamp=_LATEST
            )
            for index in range(self.partitions)
        ]
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=on.topic, partitions=wanted)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrShape(OwnPartitions):
    """LEADER_AND_ISR for ``partitions`` partitions that the connection owns."""

    def body(self, on: Occasion) -> LeaderAndIsrRequest:
        """Return a request that makes the broker their leader in a new epoch."""
        return leader_and_isr(on, self.indexes(on), (on.broker_id,))


def leader_and_isr(
    on: Occasion, indexes: range, replicas: tuple[int, ...]
) -> LeaderAndIsrRequest:
    """Return a request that makes the broker leader and the only replica in sync."""
    states = tuple(
        LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=on.controller_epoch,
            leader=on.broker_id,
            leader_epoch=on.leader_epoch,
            isr=(on.broker_id,),
            partition_epoch=on.leader_epoch,
            replicas=replicas,
        )
        for index in indexes
    )
    return LeaderAndIsrRequest(
        controller_id=on.broker_id,
        controller_epoch=on.controller_epoch,
        topic_states=(
            LeaderAndIsrTopicState(topic_name=on.topic, partition_states=states),
        ),
        live_leaders=(
            LeaderAndIsrLiveLeader(
                broker_id=on.broker_id, host_name=on.host, port=on.port
            ),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataShape(OwnPartitions):
    """UPDATE_METADATA for ``partitions`` partitions that the connection owns."""

    def body(self, on: Occasion) -> UpdateMetadataRequest:
        """Return a request that names the broker as their leader in a new epoch."""
        states = tuple(
            UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=on.controller_epoch,
                leader=on.broker_id,
                leader_epoch=on.leader_epoch,
                isr=(on.broker_id,),
                zk_version=on.leader_epoch,
                replicas=(on.broker_id,),
            )
            for index in self.indexes(on)
        )
        endpoint = UpdateMetadataEndpoint(
            port=on.port, host=on.host, listener="PLAINTEXT", security_protocol=0
        )
        return UpdateMetadataRequest(
            controller_id=on.broker_id,
            controller_epoch=on.controller_epoch,
            topic_states=(
                UpdateMetadataTopicState(topic_name=on.topic, partition_states=states),
            ),
            live_brokers=(
                UpdateMetadataBroker(id=on.broker_id, endpoints=(endpoint,)),
            ),
        )


def _group(on: Occasion) -> str:
    """Return the group of a connection; all names have equal lengths."""
    return f"{on.topic}-{on.position:04d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitShape(PartitionsShape):
    """OFFSET_COMMIT of ``partitions`` partitions by a consumer with assigned ones.

    Every connection has its own group.
    """

    def preparation(self, on: Occasion) -> Sequence[AnyRequest[Any]]:
        """Return the request that finds, and thereby creates, the coordinator."""
        return (FindCoordinatorRequest(key=_group(on)),)

    def body(self, on: Occasion) -> OffsetCommitRequest:
        """Return a request without a member."""
        offsets = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=0, committed_metadata=""
            )
            for index in range(self.partitions)
        ]
        return OffsetCommitRequest(
            group_id=_group(on),
            member_id="",
            topics=[OffsetCommitRequestTopic(name=on.topic, partitions=offsets)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatShape(RequestShape):
    """CONSUMER_GROUP_HEARTBEAT of a group's only member, without any change.

    Every connection has its own group.
    """

    def partitions_needed(self, connections: int) -> int:
        """Return the partition that all groups read."""
        return 1

    def preparation(self, on: Occasion) -> Sequence[AnyRequest[Any]]:
        """Return the requests with which the member joins."""
        return (
            FindCoordinatorRequest(key=_group(on)),
            ConsumerGroupHeartbeatRequest(
                group_id=_group(on),
                member_id=_group(on),
                member_epoch=0,
                rebalance_timeout=_REBALANCE_TIMEOUT,
                subscribed_topic_names=[on.topic],
                topic_partitions=[],
            ),
        )

    def body(self, on: Occasion) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat that reports no change."""
        return ConsumerGroupHeartbeatRequest(
            group_id=_group(on),
            member_id=_group(on),
            member_epoch=_JOINED,
            topic_partitions=None,
        )


SHAPES: Final[Mapping[ApiKey, type[RequestShape]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: ProduceShape,
        ApiKey.FETCH: FetchShape,
        ApiKey.LIST_OFFSETS: ListOffsetsShape,
        ApiKey.OFFSET_COMMIT: OffsetCommitShape,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatShape,
        ApiKey.METADATA: MetadataShape,
        ApiKey.LEADER_AND_ISR: LeaderAndIsrShape,
        ApiKey.UPDATE_METADATA: UpdateMetadataShape,
    }
)
