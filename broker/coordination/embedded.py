"""The coordinator of a cluster of one: it decides in the broker's own process.

It remembers in `registry` and commands the broker it lives in. Every decision is
durable before the broker acts on it; a deletion is noted first and forgotten last, so
that one cut short is finished by the next start. At a start it leads every partition it
knows of, each under a new leader epoch: records that were not flushed may be gone, and
clients recognise that by the epoch (KIP-320). For the same reason a start has a new
broker epoch, and takes no controller's word addressed to the one before (KIP-380).

It is never a stale controller: it speaks under the broker's own controller epoch, also
after another controller, as a load generator plays one, has raised it. What such a
controller says of the topics here holds until the next start and is not remembered;
topics that it made are found on disk then, and adopted (adoption.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from logging import getLogger
from typing import Final
from uuid import UUID

from broker.cluster.blocking import Blocking, call_here, carried_out, in_turns
from broker.cluster.topics import GROUP_METADATA_TOPIC, Topic
from broker.coordination.adoption import reconcile
from broker.coordination.cluster_state import Change, Deletion
from broker.coordination.commands import Commands
from broker.coordination.coordinator import (
    Configs,
    CoordinatedBroker,
    FoundLog,
    NewTopic,
)
from broker.coordination.registry import Registry
from broker.coordination.single_node import SingleNode
from broker.coordination.turns import Turns
from broker.disk.identity import kafka_uuid
from broker.log.steps import Steps, run
from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.topic_partition import TopicPartition
from planes.slices import preempt

logger = getLogger(__name__)

# Kafka's ``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``.
PRODUCER_ID_BLOCK: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1
_LEADER_EPOCH_MAX: Final = 2**31 - 1


class EmbeddedCoordinator(SingleNode):
    """One broker, ``broker_id``; ``new_id`` draws topic ids."""

    def __init__(
        self,
        registry: Registry,
        *,
        broker_id: int,
        new_id: Callable[[], UUID],
        blocking: Blocking = call_here,
    ) -> None:
        super().__init__(broker_id)
        self._blocking = blocking
        # A decision is written before the next one is made.
        self._decisions = Turns()
        self._extensions = Turns()
        self._registry = registry
        self._new_id = new_id
        # Topics whose logs are being removed by some request just now.
        self._removing: set[str] = set()

    @property
    def broker_epoch(self) -> int:
        """The number of starts of this broker."""
        return self._registry.state.broker_epoch

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist, by name."""
        return self._registry.state.topics

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Dynamic broker configs by broker id; "" is every broker's default."""
        return self._registry.state.broker_configs

    def configs_of(self, topic: str) -> Mapping[str, str] | None:
        """Return a topic's own configs; None if it is unknown."""
        found = self.topics.get(topic)
        return found.configs if found else None

    @property
    def offsets_partitions(self) -> int | None:
        """The partition count of ``__consumer_offsets``; None if there is none."""
        found = self.topics.get(GROUP_METADATA_TOPIC)
        return None if found is None else len(found.leader_epochs)

    @property
    def remembers_at_length(self) -> bool:
        """Return whether the changes outgrow the state; False amid a change."""
        return self._registry.is_long and not self._decisions.is_taken

    def compaction(self) -> Steps[None]:
        """Write the registry anew; raise OSError."""
        if self._decisions.is_taken:
            return
        self._decisions.take()
        try:
            yield from self._registry.compaction()
        finally:
            self._decisions.give_back()

    def load(self) -> None:
        """Read the registry; raise OSError or `MalformedCheckpoint`."""
        self._registry.load()

    def reconcile(
        self, found: Mapping[TopicPartition, FoundLog]
    ) -> Mapping[TopicPartition, str]:
        """Adopt unknown topics, and name the logs that belong to no topic."""
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

    def open(self, broker: CoordinatedBroker) -> None:
        """Lead everything, as a controller does at a start."""
        self._broker = broker
        deleting = self._registry.state.deleting
        for topic in self.topics.values():
            for index in topic.partitions:
                self._start(topic, index)
        done = [k for k, v in deleting.items() if self._delete_all(k, v)]
        if done:
            self._broker.settle_deletions_now()
            self._registry.change(Change(deleting=dict.fromkeys(done)))

    def replicas_failed(self, lost: Sequence[TopicPartition]) -> None:
        """Publish that partitions have no leader: there is no other replica."""
        by_topic: dict[str, list[int]] = {}
        for name, index in lost:
            by_topic.setdefault(name, []).append(index)
        for name, indexes in by_topic.items():
            topic = self.topics.get(name)
            if topic is not None:
                known = [index for index in indexes if index in topic.partitions]
                self._announce(topic, known, NO_LEADER)

    def start_again(self, refused: Sequence[TopicPartition]) -> None:
        """Lead what there is room for now."""
        for name, index in refused:
            topic = self.topics.get(name)
            if topic is not None and index in topic.partitions:
                self._start(topic, index)

    # ---- topics -----------------------------------------------------------------

    async def begin_topic(self, new: NewTopic) -> ErrorCode:
        """Create a topic; return the answer of a broker under KRaft."""
        await self.create_topic(new)
        return ErrorCode.unknown_topic_or_partition

    async def create_topic(self, new: NewTopic, timeout_ms: int = 0) -> Topic:
        """Create a topic; raise TOPIC_ALREADY_EXISTS or KAFKA_STORAGE_ERROR."""
        self._check_absent(new.name)
        if new.name in self._registry.state.deleting:
            await self._remove(new.name)
        topic = Topic(
            name=new.name,
            topic_id=self._new_id(),
            leader_epochs=(0,) * len(new.assignment),
            configs=dict(new.configs),
        )

        def decide() -> Change:
            self._check_absent(new.name, *self._registry.state.deleting)
            return Change(topics={topic.name: topic})

        await self._decided(decide)
        try:
            async with self._broker.state_change_lock:
                await self._create_replicas(topic, topic.partitions)
        except KafkaError:
            # On a disk without room nothing could be noted first.
            if await self._retracted(lambda: self._forgetting_if_there(topic)):
                await self._remove(topic.name)
            raise
        return topic

    def _check_absent(self, name: str, *deleting: str) -> None:
        """Raise unless a topic may be created under this name."""
        if name in self.topics or name in self._removing or name in deleting:
            raise KafkaError(
                ErrorCode.topic_already_exists, f"topic {name!r} already exists"
            )

    def _forgetting_if_there(self, topic: Topic) -> Change | None:
        return _forgetting(topic) if self._exists(topic) else None

    async def delete_topic(self, name: str, timeout_ms: int = 0) -> None:
        """Delete a topic; raise UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR.

        After the latter the topic is gone for clients; its remains go with the next
        attempt to delete or create it, or with the next start.
        """
        deleting = self._registry.state.deleting
        if name not in deleting or name in self._removing:
            await self._decided(lambda: _forgetting(self._topic(name)))
        await self._remove(name)

    async def _remove(self, name: str) -> None:
        """Remove the logs of a topic that is being deleted, and forget it wholly."""
        self._removing.add(name)
        try:
            async with self._broker.state_change_lock:
                await self._remove_replicas(name)
            await self._settle(name)
        finally:
            self._removing.discard(name)

    async def _remove_replicas(self, name: str) -> None:
        deletion = self._registry.state.deleting.get(name)
        if deletion is None:
            # Another request has finished it meanwhile.
            return
        # Clients are informed first, so that none is sent to a replica that is gone.
        await in_turns(self._telling_of_deletion(name, deletion))
        for index in range(deletion.partitions):
            if not self._delete(name, index, deletion.topic_id):
                raise KafkaError(
                    ErrorCode.kafka_storage_error, f"{name}-{index} is not removed"
                )
            await preempt()

    async def _settle(self, name: str) -> None:
        """Forget a deletion, once no loss of power can undo it."""
        await self._broker.settle_deletions()
        await self._decided(
            lambda: (
                Change(deleting={name: None})
                if name in self._registry.state.deleting
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
        """Add partitions; all of them are ready, or none was added.

        One extension after the other: undoing one would take the next one's with it.
        """

        def decide() -> Change | None:
            before = self._topic(name)
            if len(before.leader_epochs) != first:
                return None
            epochs = (*before.leader_epochs, *(0 for _ in assignment))
            return Change(topics={name: replace(before, leader_epochs=epochs)})

        async with self._extensions:
            if not await self._decided(decide):
                return False
            topic = self._topic(name)
            added = topic.partitions[first:]
            try:
                async with self._broker.state_change_lock:
                    await self._create_replicas(topic, added)
            except KafkaError:
                await self._undo_extension(topic, added)
                raise
        return True

    async def set_topic_configs(
        self, name: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Replace a topic's configs, and see that they take effect."""

        def decide() -> Change | None:
            topic = self._topic(name)
            if instead_of not in (None, topic.configs):
                return None
            return Change(topics={name: replace(topic, configs=dict(configs))})

        if not await self._decided(decide):
            return False
        await self._broker.topic_changed(name)
        return True

    async def set_broker_configs(
        self, broker: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Replace dynamic broker configs, and see that they take effect."""

        def decide() -> Change | None:
            if instead_of not in (None, self.broker_configs.get(broker, {})):
                return None
            return Change(broker_configs={broker: dict(configs)})

        if not await self._decided(decide):
            return False
        await self._broker.broker_configs_changed()
        return True

    async def _create_replicas(self, topic: Topic, indexes: range) -> None:
        """Create replicas one by one, then publish them; the lock is held."""
        for index in indexes:
            self._check_still_wanted(topic)
            outcome = self._lead(topic, index, is_new=True)
            if outcome is not ErrorCode.none:
                raise KafkaError(outcome, f"no replica of {topic.name}-{index}")
            await preempt()
        self._check_still_wanted(topic)
        await in_turns(self._telling(topic, indexes, self._id))

    def _check_still_wanted(self, topic: Topic) -> None:
        """Raise if the topic was deleted while its creation was preempted."""
        if not self._exists(topic):
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"topic {topic.name!r} was deleted while it was being created",
            )

    def _exists(self, topic: Topic) -> bool:
        """Return whether this very topic has not been deleted."""
        known = self.topics.get(topic.name)
        return known is not None and known.topic_id == topic.topic_id

    async def _undo_extension(self, topic: Topic, indexes: range) -> None:
        """Forget partitions, the last of a topic, that could not be created."""

        def decide() -> Change | None:
            if not self._exists(topic):
                # It was deleted meanwhile, with all that it had.
                return None
            known = self.topics[topic.name]
            kept = replace(known, leader_epochs=known.leader_epochs[: indexes.start])
            return Change(topics={topic.name: kept})

        async with self._broker.state_change_lock:
            if self._exists(topic):
                for index in indexes:
                    self._delete(topic.name, index, topic.topic_id)
        await self._broker.forget_deleted_logs()
        await self._retracted(decide)

    # ---- the rest ---------------------------------------------------------------

    async def producer_id_block(self) -> range:
        """Reserve the next thousand ids; those of a stopped broker are lost."""

        def decide() -> Change:
            following = self._registry.state.next_producer_id + PRODUCER_ID_BLOCK
            if following > _PRODUCER_ID_MAX:
                raise KafkaError(
                    ErrorCode.unknown_server_error, "producer ids exhausted"
                )
            return Change(next_producer_id=following)

        await self._decided(decide)
        following = self._registry.state.next_producer_id
        return range(following - PRODUCER_ID_BLOCK, following)

    # ---- commands ---------------------------------------------------------------

    @property
    def _commands(self) -> Commands:
        return Commands(
            broker_id=self._id,
            controller_epoch=self._broker.controller_epoch,
            broker_epoch=self.broker_epoch,
        )

    def _topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}"
            )
        return topic

    async def _decided(self, decide: Callable[[], Change | None]) -> bool:
        """Make a decision and store it, durably; False if there is nothing to do.

        The caller finds the change in the state, before any other decision.
        """
        async with self._decisions:
            change = decide()
            if change is None:
                return False
            try:
                await carried_out(self._registry.changing(change), self._blocking)
            except OSError as error:
                raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        return True

    async def _retracted(self, decide: Callable[[], Change | None]) -> bool:
        """Do the same for what takes something back, which never fails."""
        async with self._decisions:
            change = decide()
            if change is None:
                return False
            await carried_out(self._registry.retracting(change), self._blocking)
        return True

    def _start(self, topic: Topic, index: int) -> None:
        """Lead a partition that was there before, if its disk lets us."""
        led = self._lead(topic, index, is_new=False) is ErrorCode.none
        self._announce(topic, [index], self._id if led else NO_LEADER)

    def _lead(self, topic: Topic, index: int, *, is_new: bool) -> ErrorCode:
        answer = self._broker.become_leader_or_follower(
            self._commands.lead(topic, [index], is_new=is_new)
        )
        (outcome,) = answer.partition_errors
        return outcome.error_code

    def _delete_all(self, name: str, deletion: Deletion) -> bool:
        """Finish a deletion that was cut short; False if a disk fails."""
        run(self._telling_of_deletion(name, deletion))
        return all(
            self._delete(name, index, deletion.topic_id)
            for index in range(deletion.partitions)
        )

    def _delete(self, topic: str, index: int, topic_id: UUID | None) -> bool:
        """Delete one replica of this very topic; False if its disk fails."""
        if not self._broker.holds(TopicPartition(topic, index), topic_id):
            return True
        answer = self._broker.stop_replicas(self._commands.delete(topic, index))
        (outcome,) = answer.partition_errors
        return outcome.error_code is ErrorCode.none

    def _announce(self, topic: Topic, indexes: Iterable[int], leader: int) -> None:
        """Announce leaders to clients in one step: no handler could wait."""
        making = self._commands.announcing(topic, indexes, leader=leader)
        self._broker.update_metadata(run(making))

    def _telling(
        self, topic: Topic, indexes: Iterable[int], leader: int
    ) -> Steps[None]:
        """Announce leaders to clients in steps; the caller holds the lock."""
        making = self._commands.announcing(topic, indexes, leader=leader)
        yield from self._broker.updating_metadata((yield from making))

    def _telling_of_deletion(self, name: str, deletion: Deletion) -> Steps[None]:
        """Announce the deletion of a topic to clients in steps."""
        making = self._commands.forgetting(name, deletion.topic_id, deletion.partitions)
        yield from self._broker.updating_metadata((yield from making))


def _forgetting(topic: Topic) -> Change:
    """Return the change that forgets a topic, and notes that its logs are to go."""
    deletion = Deletion(topic_id=topic.topic_id, partitions=len(topic.leader_epochs))
    return Change(topics={topic.name: None}, deleting={topic.name: deletion})


def _next_life(topic: Topic, found: Mapping[TopicPartition, FoundLog]) -> Topic:
    """Return a topic under leader epochs that no log of it has seen.

    After the last epoch that there is (another controller may have come to it) there is
    none: then the log goes on under that one.
    """
    epochs = []
    for index, epoch in enumerate(topic.leader_epochs):
        log = found.get(TopicPartition(topic.name, index))
        latest = max(epoch, log.latest_epoch if log else epoch)
        epochs.append(min(latest + 1, _LEADER_EPOCH_MAX))
    return replace(topic, leader_epochs=tuple(epochs))
