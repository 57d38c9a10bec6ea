"""Who decides in the cluster, and what it asks of a broker.

A `Coordinator` answers for what one broker cannot know alone: which topics exist, who
leads, which producer ids are free. It speaks to a broker (`Controlled`) in the words
of Kafka's controller requests, so that a decision made in this process and one that
came over the wire change the same state by the same path. Its verbs are coroutines
because other coordinators have to wait for a quorum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.cluster.topics import Topic
from broker.errors import ErrorCode
from broker.wire.controller.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.wire.controller.stop_replica import StopReplicaRequest, StopReplicaResponse
from broker.wire.controller.update_metadata import UpdateMetadataRequest
from planes.lock import TaskLock


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create, checked already; ``assignment`` is replicas by partition."""

    name: str
    assignment: tuple[tuple[int, ...], ...]
    configs: Mapping[str, str]


class Controlled(Protocol):
    """A broker, as far as a coordinator commands it."""

    @property
    def controller_epoch(self) -> int:
        """The last controller epoch that the broker heard of."""

    @property
    def state_change_lock(self) -> TaskLock:
        """What a change of several replicas holds, so that no other comes between."""

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        """Lead and follow partitions."""

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop or delete replicas."""

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Tell clients this from now on."""

    def topic_changed(self, name: str) -> None:
        """Take the topic's configs into effect."""

    def broker_configs_changed(self) -> None:
        """Take the dynamic broker configs into effect."""


class Coordinator(Protocol):
    """The cluster's one mind; errors are `KafkaError`."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration (KIP-380); it grows with starts."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist, by name."""

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Dynamic broker configs by broker id; "" is every broker's default."""

    def live_brokers(self) -> Sequence[int]:
        """Return the ids of the brokers that replicas can be placed on."""

    async def create_topic(self, new: NewTopic) -> Topic:
        """Create a topic; raise TOPIC_ALREADY_EXISTS."""

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; raise UNKNOWN_TOPIC_OR_PARTITION."""

    async def create_partitions(
        self, name: str, assignment: tuple[tuple[int, ...], ...]
    ) -> None:
        """Add partitions to a topic; ``assignment`` is that of the new ones."""

    async def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's configs."""

    async def set_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace the dynamic configs of one broker, or of all ("")."""

    async def producer_id_block(self) -> range:
        """Reserve producer ids that nobody else will ever be given."""

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> None:
        """Move leaderships off a broker that stops, as far as there is where to."""
