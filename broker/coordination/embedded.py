"""The coordinator of a single-broker cluster, in the broker's own process.

It stores its state in `embedded_registry` and commands the broker of its process.
Topics and configs are in `embedded_admin`. At a start the broker leads every known
partition under a new leader epoch: unflushed records may be lost, which clients detect
by the epoch (KIP-320). For the same reason a start has a new broker epoch, and requests
of a controller to the previous epoch are rejected (KIP-380).

The coordinator is never a stale controller: its requests carry the broker's own
controller epoch, also after another controller has raised it, such as a load generator.
Decisions of such a controller hold until the next start and are not stored. Topics that
it created are then found on disk and adopted (`adoption`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from logging import getLogger
from typing import Final
from uuid import UUID

from broker.cluster.blocking import Blocking, call_here
from broker.cluster.cluster_topics import Topic
from broker.coordination.adoption import reconcile
from broker.coordination.cluster_state import Change
from broker.coordination.commands import SoleReplicas
from broker.coordination.coordinator_roles import (
    ConfigKind,
    Configs,
    CoordinatedBroker,
    Coordinator,
    FoundLog,
)
from broker.coordination.embedded_admin import EmbeddedAdmin
from broker.coordination.embedded_registry import Registry
from broker.coordination.registry_writes import RegistryWrites
from broker.coordination.single_node import SingleNodeController, SingleNodeMembership
from broker.disk.identity import kafka_uuid
from broker.log.steps import Steps
from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.topic_partition import TopicPartition

logger = getLogger(__name__)

_LEADER_EPOCH_MAX: Final = 2**31 - 1


def embedded_coordinator(
    registry: Registry,
    *,
    broker_id: int,
    new_id: Callable[[], UUID],
    blocking: Blocking = call_here,
) -> Coordinator:
    """Return the coordinator of one broker; ``new_id`` draws topic ids."""
    writes = RegistryWrites(registry, blocking)
    membership = EmbeddedMembership(registry, broker_id)
    return Coordinator(
        admin=EmbeddedAdmin(writes, membership.replicas, new_id),
        membership=membership,
        controller=SingleNodeController(membership),
        local=RegistryState(registry, writes, new_id),
    )


class RegistryState:
    """The registry file as the broker's local state."""

    def __init__(
        self, registry: Registry, writes: RegistryWrites, new_id: Callable[[], UUID]
    ) -> None:
        self._registry = registry
        self._writes = writes
        self._new_id = new_id

    @property
    def needs_compaction(self) -> bool:
        """Return whether the changes outgrow the state; False during a change."""
        return self._writes.needs_compaction

    def compaction(self) -> Steps[None]:
        """Rewrite the registry; raise OSError."""
        return self._writes.compaction()

    def load(self) -> None:
        """Read the registry; raise OSError or `MalformedCheckpoint`."""
        self._registry.load()

    def add_first_users(self, configs: Mapping[str, Configs]) -> None:
        """Add configs that users lack; raise OSError."""
        present = self._registry.state.configs[ConfigKind.USER]
        added: dict[str, Configs] = {}
        for user, wanted in configs.items():
            of_user = present.get(user, {})
            if not wanted.keys() <= of_user.keys():
                added[user] = {**wanted, **of_user}
        if added:
            self._registry.change(Change(configs={ConfigKind.USER: added}))

    def reconcile(
        self, found: Mapping[TopicPartition, FoundLog]
    ) -> Mapping[TopicPartition, str]:
        """Adopt unknown topics, and return the logs that belong to no topic."""
        outcome = reconcile(self._registry.state, found, self._new_id)
        for topic in outcome.adopted.values():
            logger.warning(
                "a topic was found on disk that was not known; it is kept for ever "
                "unless its configs are altered",
                extra=fields(
                    topic=topic.name,
                    id=kafka_uuid(topic.topic_id),
                    partitions=len(topic.leader_epochs),
                ),
            )
        state = outcome.state
        self._registry.renew(
            replace(
                state,
                broker_epoch=state.broker_epoch + 1,
                topics={
                    name: _next_life(topic, found)
                    for name, topic in state.topics.items()
                },
            )
        )
        return outcome.strays


class EmbeddedMembership(SingleNodeMembership):
    """The membership of a broker that leads all its partitions itself."""

    def __init__(self, registry: Registry, broker_id: int) -> None:
        super().__init__(broker_id)
        self._registry = registry
        self.replicas = SoleReplicas(broker_id, lambda: self.broker_epoch)

    @property
    def broker_epoch(self) -> int:
        """The number of starts of this broker."""
        return self._registry.state.broker_epoch

    @property
    def generation(self) -> int:
        """The number of changes of the registry."""
        return self._registry.state.generation

    def open(self, broker: CoordinatedBroker) -> None:
        """Lead all partitions, and finish interrupted deletions."""
        self.broker = self.replicas.broker = broker
        deleting = self._registry.state.deleting
        for topic in self._registry.state.topics.values():
            for index in topic.partitions:
                self._start(topic, index)
        done = [k for k, v in deleting.items() if self.replicas.delete_all(k, v)]
        if done:
            self.broker.settle_deletions_now()
            self._registry.change(Change(deleting=dict.fromkeys(done)))

    def replicas_failed(self, lost: Sequence[TopicPartition]) -> None:
        """Publish that partitions have no leader: there is no other replica."""
        by_topic: dict[str, list[int]] = {}
        for name, index in lost:
            by_topic.setdefault(name, []).append(index)
        for name, indexes in by_topic.items():
            topic = self._registry.state.topics.get(name)
            if topic is not None:
                known = [index for index in indexes if index in topic.partitions]
                self.replicas.announce(topic, known, NO_LEADER)

    def start_again(self, refused: Sequence[TopicPartition]) -> None:
        """Lead the refused partitions, as far as the disks have space now."""
        for name, index in refused:
            topic = self._registry.state.topics.get(name)
            if topic is not None and index in topic.partitions:
                self._start(topic, index)

    def _start(self, topic: Topic, index: int) -> None:
        """Lead an existing partition, unless its disk fails."""
        led = self.replicas.lead(topic, index, is_new=False) is ErrorCode.none
        self.replicas.announce(topic, [index], self.broker_id if led else NO_LEADER)


def _next_life(topic: Topic, found: Mapping[TopicPartition, FoundLog]) -> Topic:
    """Return a topic under new leader epochs, above those in its logs.

    The largest possible epoch, to which another controller may have raised it, is kept.
    """
    epochs = []
    for index, epoch in enumerate(topic.leader_epochs):
        log = found.get(TopicPartition(topic.name, index))
        latest = max(epoch, log.latest_epoch if log else epoch)
        epochs.append(min(latest + 1, _LEADER_EPOCH_MAX))
    return replace(topic, leader_epochs=tuple(epochs))
