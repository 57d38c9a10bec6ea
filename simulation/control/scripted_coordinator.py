"""The coordinator of a broker under a `ScriptedController`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from broker.authorization.acls import AclEntry, ResourcePattern
from broker.cluster.cluster_topics import Topic
from broker.coordination.coordinator_roles import (
    AlterAcls,
    BrokerRack,
    ConfigKind,
    Configs,
    CoordinatedBroker,
    Coordinator,
    NewTopic,
)
from broker.coordination.features import FeatureUpdate, FinalizedFeatures
from broker.coordination.single_node import SingleNodeController, SingleNodeMembership
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from simulation.control.elections import Elections


class Script(Protocol):
    """The part of the controller that a broker reads without messages."""

    elections: Elections
    topics: dict[str, Topic]
    features: FinalizedFeatures
    controller_epoch: int

    def epoch_of(self, broker: int) -> int:
        """Return the epoch of a broker's registration."""

    def start_again(self, broker: int, keys: Iterable[TopicPartition]) -> None:
        """Send the commands for these partitions again."""

    def producer_ids(self) -> range:
        """Return a new block of producer ids."""


def scripted_coordinator(controller: Script, broker: int) -> Coordinator:
    """Return the coordinator of a broker whose controller is a `ScriptedController`."""
    membership = ScriptedMembership(controller, broker)
    return Coordinator(
        admin=ScriptedAdmin(controller),
        membership=membership,
        controller=RefusingController(membership),
    )


class ScriptedMembership(SingleNodeMembership):
    """Membership decided by the script."""

    def __init__(self, controller: Script, broker: int) -> None:
        super().__init__(broker)
        self._controller = controller

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._controller.epoch_of(self.broker_id)

    async def has_elected(self, controller_epoch: int) -> bool:
        """Return whether the script has had a controller with this epoch."""
        return controller_epoch <= self._controller.controller_epoch

    def open(self, broker: CoordinatedBroker) -> None:
        """Do nothing: the controller sends its commands over the network."""
        self.broker = broker

    def replicas_failed(self, lost: Sequence[TopicPartition]) -> None:
        """Do nothing: a broker whose only directory has failed stops."""

    def start_again(self, refused: Sequence[TopicPartition]) -> None:
        """Request all commands again."""
        self._controller.start_again(self.broker_id, refused)

    def live_brokers(self) -> Sequence[BrokerRack]:
        """Return the live brokers."""
        return [BrokerRack(each) for each in sorted(self._controller.elections.live)]


class ScriptedAdmin:
    """Topics of the script; no request can change them."""

    def __init__(self, controller: Script) -> None:
        self._controller = controller
        self.configs: Mapping[ConfigKind, Mapping[str, Configs]] = {
            kind: {} for kind in ConfigKind
        }

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The existing topics, by name."""
        return self._controller.topics

    @property
    def acls(self) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        """The access control lists: the script has none."""
        return {}

    @property
    def finalized_features(self) -> FinalizedFeatures:
        """The finalized levels, which do not change."""
        return self._controller.features

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validates_only: bool
    ) -> None:
        """Refuse."""
        raise _refused()

    async def alter_acls(
        self, changes: Mapping[ResourcePattern, AlterAcls]
    ) -> Mapping[ResourcePattern, KafkaError]:
        """Refuse."""
        raise _refused()

    def configs_of(self, topic: str) -> Mapping[str, str] | None:
        """Return the script's configs of a topic; None for an unknown topic."""
        found = self.topics.get(topic)
        return found.configs if found else None

    def internal_partitions(self, topic: str) -> int | None:
        """Return an internal topic's partition count; None if there is no topic."""
        found = self.topics.get(topic)
        return None if found is None else len(found.leader_epochs)

    async def producer_id_block(self) -> range:
        """Reserve producer ids."""
        return self._controller.producer_ids()

    async def begin_topic(self, new: NewTopic) -> ErrorCode:
        """Refuse: only the script creates topics."""
        raise _refused()

    async def create_topic(self, new: NewTopic, timeout_ms: int = 0) -> Topic:
        """Refuse."""
        raise _refused()

    async def delete_topic(self, name: str, timeout_ms: int = 0) -> None:
        """Refuse."""
        raise _refused()

    async def create_partitions(
        self,
        name: str,
        first: int,
        assignment: tuple[tuple[int, ...], ...],
        timeout_ms: int = 0,
    ) -> bool:
        """Refuse."""
        raise _refused()

    async def set_topic_configs(
        self, name: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Refuse."""
        raise _refused()

    async def set_configs(
        self,
        kind: ConfigKind,
        name: str,
        configs: Configs,
        instead_of: Configs | None = None,
    ) -> bool:
        """Refuse."""
        raise _refused()


class RefusingController(SingleNodeController):
    """Decisions of one broker: only the script elects leaders and moves replicas."""

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> Sequence[TopicPartition]:
        """Refuse."""
        raise _refused()


def _refused() -> KafkaError:
    return KafkaError(ErrorCode.not_controller, "the controller follows a script")
