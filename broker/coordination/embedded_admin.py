"""Topics, configs and producer ids of a single-broker cluster.

Every decision is durable before the broker acts on it. A deletion is recorded before
its first step and erased after its last step, so that the next start finishes an
interrupted deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from broker.authorization.acls import AclEntry, ResourcePattern
from broker.cluster.blocking import in_turns
from broker.cluster.cluster_topics import Topic
from broker.coordination.cluster_state import Change, Deletion
from broker.coordination.commands import SoleReplicas
from broker.coordination.coordinator_roles import (
    AlterAcls,
    ConfigKind,
    Configs,
    NewTopic,
    put_into_effect,
)
from broker.coordination.features import (
    FeatureUpdate,
    FinalizedFeatures,
    check_update,
)
from broker.coordination.registry_writes import RegistryWrites
from broker.coordination.turns import Turns
from broker.protocol.errors import ErrorCode, KafkaError
from planes.slices import preempt

# Kafka's ``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``.
PRODUCER_ID_BLOCK: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1


class EmbeddedAdmin:
    """The admin manager over a registry file; ``new_id`` draws topic ids."""

    def __init__(
        self,
        writes: RegistryWrites,
        replicas: SoleReplicas,
        new_id: Callable[[], UUID],
    ) -> None:
        self._writes = writes
        self._replicas = replicas
        self._new_id = new_id
        self._extensions = Turns()
        # Topics whose logs a request is removing now.
        self._removing: set[str] = set()

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist, by name."""
        return self._writes.state.topics

    @property
    def configs(self) -> Mapping[ConfigKind, Mapping[str, Configs]]:
        """Configs by kind and name."""
        return self._writes.state.configs

    @property
    def acls(self) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        """The access control lists, by pattern."""
        return self._writes.state.acls

    @property
    def finalized_features(self) -> FinalizedFeatures:
        """The stored levels; their epoch is the generation, which grows per change."""
        state = self._writes.state
        return FinalizedFeatures(epoch=state.generation, levels=state.features)

    def configs_of(self, topic: str) -> Mapping[str, str] | None:
        """Return a topic's own configs; None if the topic is unknown."""
        found = self.topics.get(topic)
        return found.configs if found else None

    def internal_partitions(self, topic: str) -> int | None:
        """Return an internal topic's partition count; None if there is no topic."""
        found = self.topics.get(topic)
        return None if found is None else len(found.leader_epochs)

    async def begin_topic(self, new: NewTopic) -> ErrorCode:
        """Create a topic; return the error code of a broker under KRaft."""
        await self.create_topic(new)
        return ErrorCode.unknown_topic_or_partition

    async def create_topic(self, new: NewTopic, timeout_ms: int = 0) -> Topic:
        """Create a topic; raise TOPIC_ALREADY_EXISTS or KAFKA_STORAGE_ERROR."""
        self._check_absent(new.name)
        if new.name in self._writes.state.deleting:
            await self._remove(new.name)
        topic = Topic(
            name=new.name,
            topic_id=self._new_id(),
            leader_epochs=(0,) * len(new.assignment),
            configs=dict(new.configs),
        )

        def decide() -> Change:
            self._check_absent(new.name, *self._writes.state.deleting)
            return Change(topics={topic.name: topic})

        await self._writes.write(decide)
        try:
            async with self._replicas.broker.state_change_lock:
                await self._create_replicas(topic, topic.partitions)
        except KafkaError:
            # `retract` never fails: on a full disk no change can be recorded first.
            removal = partial(self._removal_if_exists, topic)
            if await self._writes.retract(removal):
                await self._remove(topic.name)
            raise
        return topic

    def _check_absent(self, name: str, *deleting: str) -> None:
        """Raise unless a topic may be created under this name."""
        if name in self.topics or name in self._removing or name in deleting:
            raise KafkaError(
                ErrorCode.topic_already_exists, f"topic {name!r} already exists"
            )

    def _removal_if_exists(self, topic: Topic) -> Change | None:
        return _removal(topic) if self._exists(topic) else None

    async def delete_topic(self, name: str, timeout_ms: int = 0) -> None:
        """Delete a topic; raise UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR.

        After KAFKA_STORAGE_ERROR the topic no longer exists for clients. Its remaining
        logs are removed by the next attempt to delete or create it, or at the next
        start.
        """
        deleting = self._writes.state.deleting
        if name not in deleting or name in self._removing:
            await self._writes.write(lambda: _removal(self._topic(name)))
        await self._remove(name)

    async def _remove(self, name: str) -> None:
        """Remove the logs of a deleted topic, then its deletion record."""
        self._removing.add(name)
        try:
            async with self._replicas.broker.state_change_lock:
                await self._remove_replicas(name)
            await self._settle(name)
        finally:
            self._removing.discard(name)

    async def _remove_replicas(self, name: str) -> None:
        deletion = self._writes.state.deleting.get(name)
        if deletion is None:
            # Another request has finished the deletion meanwhile.
            return
        # Clients are informed first, so that none is directed to a removed replica.
        await in_turns(self._replicas.announce_deletion(name, deletion))
        for index in range(deletion.partitions):
            if not self._replicas.delete(name, index, deletion.topic_id):
                raise KafkaError(
                    ErrorCode.kafka_storage_error, f"{name}-{index} is not removed"
                )
            await preempt()

    async def _settle(self, name: str) -> None:
        """Erase the record of a deletion once the deletion is durable."""
        await self._replicas.broker.settle_deletions()
        await self._writes.write(
            lambda: (
                Change(deleting={name: None})
                if name in self._writes.state.deleting
                else None
            )
        )

    async def create_partitions(
        self,
        name: str,
        first: int,
        assignment: tuple[tuple[int, ...], ...],
        timeout_ms: int = 0,
    ) -> bool:
        """Add partitions; either all of them are ready, or none was added.

        Extensions run one after the other: undoing one would also remove the partitions
        of the next.
        """

        def decide() -> Change | None:
            before = self._topic(name)
            if len(before.leader_epochs) != first:
                return None
            epochs = (*before.leader_epochs, *(0 for _ in assignment))
            return Change(topics={name: replace(before, leader_epochs=epochs)})

        async with self._extensions:
            if not await self._writes.write(decide):
                return False
            topic = self._topic(name)
            added = topic.partitions[first:]
            try:
                async with self._replicas.broker.state_change_lock:
                    await self._create_replicas(topic, added)
            except KafkaError:
                await self._undo_extension(topic, added)
                raise
        return True

    async def set_topic_configs(
        self, name: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Replace a topic's configs, and apply them."""

        def decide() -> Change | None:
            topic = self._topic(name)
            if instead_of not in (None, topic.configs):
                return None
            return Change(topics={name: replace(topic, configs=dict(configs))})

        if not await self._writes.write(decide):
            return False
        await self._replicas.broker.topic_changed(name)
        return True

    async def set_configs(
        self,
        kind: ConfigKind,
        name: str,
        configs: Configs,
        instead_of: Configs | None = None,
    ) -> bool:
        """Replace configs, and apply them; empty configs are removed."""

        def decide() -> Change | None:
            if instead_of not in (None, self.configs[kind].get(name, {})):
                return None
            return Change(configs={kind: {name: dict(configs) or None}})

        if not await self._writes.write(decide):
            return False
        await put_into_effect(self._replicas.broker, kind, name)
        return True

    async def alter_acls(
        self, changes: Mapping[ResourcePattern, AlterAcls]
    ) -> Mapping[ResourcePattern, KafkaError]:
        """Replace the entries of patterns in one change, durable before returning."""
        altered: dict[ResourcePattern, frozenset[AclEntry] | None] = {}

        def decide() -> Change | None:
            for pattern, alter in changes.items():
                before = self.acls.get(pattern, frozenset())
                after = alter(before)
                if after != before:
                    altered[pattern] = after or None
            return Change(acls=altered) if altered else None

        try:
            await self._writes.write(decide)
        except KafkaError as error:
            return dict.fromkeys(changes, error)
        self._replicas.broker.acls_changed(altered)
        return {}

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validates_only: bool
    ) -> None:
        """Finalize levels in one change; 0 is stored as no level."""

        def decide() -> Change | None:
            present = self._writes.state.features
            for name, update in updates.items():
                check_update(name, update, present.get(name, 0))
            changed = {
                name: update.level or None
                for name, update in updates.items()
                if update.level != present.get(name, 0)
            }
            return Change(features=changed) if changed and not validates_only else None

        await self._writes.write(decide)

    async def _create_replicas(self, topic: Topic, indexes: range) -> None:
        """Create replicas one by one, then publish them; the lock is held."""
        for index in indexes:
            self._check_not_deleted(topic)
            outcome = self._replicas.lead(topic, index, is_new=True)
            if outcome is not ErrorCode.none:
                raise KafkaError(outcome, f"no replica of {topic.name}-{index}")
            await preempt()
        self._check_not_deleted(topic)
        await in_turns(
            self._replicas.announce_in_steps(topic, indexes, self._replicas.broker_id)
        )

    def _check_not_deleted(self, topic: Topic) -> None:
        """Raise if the topic was deleted while its creation was preempted."""
        if not self._exists(topic):
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"topic {topic.name!r} was deleted while it was being created",
            )

    def _exists(self, topic: Topic) -> bool:
        """Return whether the topic with this id still exists."""
        known = self.topics.get(topic.name)
        return known is not None and known.topic_id == topic.topic_id

    async def _undo_extension(self, topic: Topic, indexes: range) -> None:
        """Remove the last partitions of a topic, which could not be created."""

        def decide() -> Change | None:
            if not self._exists(topic):
                # The topic was deleted meanwhile.
                return None
            known = self.topics[topic.name]
            kept = replace(known, leader_epochs=known.leader_epochs[: indexes.start])
            return Change(topics={topic.name: kept})

        async with self._replicas.broker.state_change_lock:
            if self._exists(topic):
                for index in indexes:
                    self._replicas.delete(topic.name, index, topic.topic_id)
        await self._replicas.broker.checkpoint_deletions()
        await self._writes.retract(decide)

    async def producer_id_block(self) -> range:
        """Reserve the next thousand ids; those of a stopped broker are lost."""

        def decide() -> Change:
            following = self._writes.state.next_producer_id + PRODUCER_ID_BLOCK
            if following > _PRODUCER_ID_MAX:
                raise KafkaError(
                    ErrorCode.unknown_server_error, "producer ids exhausted"
                )
            return Change(next_producer_id=following)

        await self._writes.write(decide)
        following = self._writes.state.next_producer_id
        return range(following - PRODUCER_ID_BLOCK, following)

    def _topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}"
            )
        return topic


def _removal(topic: Topic) -> Change:
    """Return the change that removes a topic and records the deletion of its logs."""
    deletion = Deletion(topic_id=topic.topic_id, partitions=len(topic.leader_epochs))
    return Change(topics={topic.name: None}, deleting={topic.name: deletion})
