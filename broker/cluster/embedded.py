"""The coordinator of a cluster of one: it decides in the broker's own process.

It remembers in `registry` and commands the broker it lives in. Every decision is
durable before the broker acts on it; a deletion is noted first and forgotten last, so
that one cut short is finished by the next start. At a start it leads every partition it
knows of, each under a new leader epoch: records that were not flushed may be gone, and
clients recognise that by the epoch (KIP-320). For the same reason a start has a new
broker epoch, and takes no controller's word addressed to the one before (KIP-380).

It is never a stale controller: it speaks under the broker's own controller epoch, also
after another controller, as a load generator plays one, has raised it. What such a
controller says of the topics here holds until the next start and is not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from broker.cluster.commands import Commands
from broker.cluster.coordinator import Controlled, NewTopic
from broker.cluster.metadata_cache import LEADER_DURING_DELETE, NO_LEADER
from broker.cluster.partition import Key
from broker.cluster.registry import Registry
from broker.cluster.topics import Topic
from broker.errors import ErrorCode, KafkaError
from planes.slices import preempt

# Kafka's ``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``.
PRODUCER_ID_BLOCK: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1


class EmbeddedCoordinator:
    """One broker, ``broker_id``; ``new_id`` draws topic ids."""

    def __init__(
        self,
        registry: Registry,
        broker: Controlled,
        *,
        broker_id: int,
        new_id: Callable[[], UUID],
    ) -> None:
        self._registry = registry
        self._broker = broker
        self._id = broker_id
        self._new_id = new_id

    @property
    def broker_epoch(self) -> int:
        """How often this broker has been started."""
        return self._registry.state.broker_epoch

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that exist, by name."""
        return self._registry.state.topics

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Dynamic broker configs by broker id; "" is every broker's default."""
        return self._registry.state.broker_configs

    def live_brokers(self) -> Sequence[int]:
        """Return this broker's id."""
        return (self._id,)

    def open(self, latest_epoch: Callable[[Key], int]) -> None:
        """Begin a new epoch and lead everything, as a controller does at a start.

        ``latest_epoch`` is the newest leader epoch in a partition's log: another
        controller may have raised it beyond what is remembered here. Raises OSError.
        """
        state = self._registry.state
        topics = {
            name: replace(
                topic,
                leader_epochs=tuple(
                    max(epoch, latest_epoch((name, index))) + 1
                    for index, epoch in enumerate(topic.leader_epochs)
                ),
            )
            for name, topic in state.topics.items()
        }
        self._registry.change(broker_epoch=state.broker_epoch + 1, topics=topics)
        for name, partitions in self._registry.state.deleting.items():
            for index in range(partitions):
                self._broker.stop_replicas(self._commands.delete(name, index))
        self._registry.change(deleting={})
        for topic in topics.values():
            for index in topic.partitions:
                led = self._lead(topic, index, is_new=False) is ErrorCode.none
                self._announce(topic, [index], self._id if led else NO_LEADER)

    # ---- topics -----------------------------------------------------------------

    async def create_topic(self, new: NewTopic) -> Topic:
        """Create a topic; raise TOPIC_ALREADY_EXISTS or KAFKA_STORAGE_ERROR."""
        state = self._registry.state
        if new.name in state.topics or new.name in state.deleting:
            raise KafkaError(
                ErrorCode.topic_already_exists, f"topic {new.name!r} already exists"
            )
        topic = Topic(
            name=new.name,
            topic_id=self._new_id(),
            leader_epochs=(0,) * len(new.assignment),
            configs=dict(new.configs),
        )
        self._remember(topics={**state.topics, topic.name: topic})
        await self._create_replicas(topic, topic.partitions)
        return topic

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; raise UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._topic(name)
        state = self._registry.state
        self._remember(
            topics={k: v for k, v in state.topics.items() if k != name},
            deleting={**state.deleting, name: len(topic.leader_epochs)},
        )
        # Clients are told first, so that nobody is sent to a replica that is gone.
        self._announce(topic, topic.partitions, LEADER_DURING_DELETE)
        for index in topic.partitions:
            self._broker.stop_replicas(self._commands.delete(name, index))
            await preempt()
        deleting = self._registry.state.deleting
        self._remember(deleting={k: v for k, v in deleting.items() if k != name})

    async def create_partitions(
        self, name: str, assignment: tuple[tuple[int, ...], ...]
    ) -> None:
        """Add partitions; all of them are ready, or none was added."""
        before = self._topic(name)
        epochs = (*before.leader_epochs, *(0 for _ in assignment))
        topic = replace(before, leader_epochs=epochs)
        self._remember(topics={**self.topics, name: topic})
        await self._create_replicas(
            topic, topic.partitions[len(before.leader_epochs) :]
        )

    async def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's configs, and see that they take effect."""
        topic = replace(self._topic(name), configs=dict(configs))
        self._remember(topics={**self.topics, name: topic})
        self._broker.topic_changed(name)

    async def set_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace dynamic broker configs, and see that they take effect."""
        self._remember(broker_configs={**self.broker_configs, broker: dict(configs)})
        self._broker.broker_configs_changed()

    async def _create_replicas(self, topic: Topic, indexes: range) -> None:
        """Create replicas one by one, then tell clients; undo all if one fails."""
        for index in indexes:
            known = self.topics.get(topic.name)
            if known is None or known.topic_id != topic.topic_id:
                raise KafkaError(
                    ErrorCode.unknown_topic_or_partition,
                    f"topic {topic.name!r} was deleted while it was being created",
                )
            outcome = self._lead(topic, index, is_new=True)
            if outcome is not ErrorCode.none:
                self._undo(topic, indexes)
                raise KafkaError(outcome, f"no replica of {topic.name}-{index}")
            await preempt()
        self._announce(topic, indexes, self._id)

    def _undo(self, topic: Topic, indexes: range) -> None:
        """Forget partitions, the last of a topic, that could not be created."""
        for index in indexes:
            self._broker.stop_replicas(self._commands.delete(topic.name, index))
        topics = dict(self.topics)
        if indexes.start:
            kept = topics[topic.name].leader_epochs[: indexes.start]
            topics[topic.name] = replace(topics[topic.name], leader_epochs=kept)
        else:
            del topics[topic.name]
        self._remember(topics=topics)

    # ---- the rest ---------------------------------------------------------------

    async def producer_id_block(self) -> range:
        """Reserve the next thousand ids; those of a stopped broker are lost."""
        first = self._registry.state.next_producer_id
        following = first + PRODUCER_ID_BLOCK
        if following > _PRODUCER_ID_MAX:
            raise KafkaError(ErrorCode.unknown_server_error, "producer ids exhausted")
        self._remember(next_producer_id=following)
        return range(first, following)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> None:
        """Move nothing, since there is no other broker.

        Raises BROKER_NOT_AVAILABLE for any other broker, and STALE_BROKER_EPOCH.
        """
        if broker_id != self._id:
            raise KafkaError(
                ErrorCode.broker_not_available, f"broker {broker_id} is not registered"
            )
        if -1 < broker_epoch < self.broker_epoch:
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"broker epoch {broker_epoch}, the present one is {self.broker_epoch}",
            )

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

    def _remember(self, **changes: object) -> None:
        try:
            self._registry.change(**changes)
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error

    def _lead(self, topic: Topic, index: int, *, is_new: bool) -> ErrorCode:
        answer = self._broker.become_leader_or_follower(
            self._commands.lead(topic, [index], is_new=is_new)
        )
        (outcome,) = answer.partition_errors
        return outcome.error_code

    def _announce(self, topic: Topic, indexes: Iterable[int], leader: int) -> None:
        self._broker.update_metadata(
            self._commands.announce(topic, indexes, leader=leader)
        )
