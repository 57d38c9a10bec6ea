"""Topics, configs and producer ids of a cluster under ZooKeeper.

Any broker writes Kafka's znodes; the controller watches them and executes the change.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Mapping,
)
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

import trio

from broker.authorization.acls import AclEntry, ResourcePattern
from broker.cluster.cluster_topics import Topic
from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.coordination.coordinator_roles import (
    AlterAcls,
    ConfigKind,
    Configs,
    NewTopic,
    put_into_effect,
)
from broker.coordination.features import (
    NO_FEATURES,
    FeatureUpdate,
    FinalizedFeatures,
)
from broker.coordination.zookeeper import topic_writes
from broker.coordination.zookeeper.configs import entity_of
from broker.coordination.zookeeper.handler_waits import HandlerWaits
from broker.coordination.zookeeper.known_topics import KnownTopics, known_leader
from broker.coordination.zookeeper.member import Member
from broker.coordination.zookeeper.retrying import RetryingZnodes, in_session
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

# Creations begun by requests: their largest number, and how long they are retried while
# ZooKeeper is unavailable. Afterwards clients that still need the topic retry.
_BEGUN_MAX: Final = 1000
_BEGUN_S: Final = 30.0
# Time-out for ZooKeeper of a request with time-out 0.
_NO_TIME_MS: Final = 1_000


class ZooKeeperAdmin:
    """The admin manager of one member; ``new_id`` draws ids of topics."""

    def __init__(
        self, member: Member, waits: HandlerWaits, new_id: Callable[[], UUID]
    ) -> None:
        self._member = member
        self._waits = waits
        self._new_id = new_id
        # Names of topics whose creation has begun, for Metadata and FindCoordinator.
        self._begun: set[str] = set()

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics received from a controller."""
        return KnownTopics(self._member.broker.metadata_cache, self.configs_of)

    @property
    def configs(self) -> Mapping[ConfigKind, Mapping[str, Configs]]:
        """Configs by kind and name."""
        return self._member.configs.others

    @property
    def acls(self) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        """The access control lists, by pattern; none without an authorizer."""
        acls = self._member.acls
        return {} if acls is None else acls.entries

    @property
    def finalized_features(self) -> FinalizedFeatures:
        """No features, as in Kafka 3.9, whose brokers may be members."""
        return NO_FEATURES

    def configs_of(self, topic: str) -> Mapping[str, str] | None:
        """Return a topic's own configs; None if the topic is unknown."""
        return self._member.configs.topics.get(topic)

    def internal_partitions(self, topic: str) -> int | None:
        """Return an internal topic's partition count at the start; None: no topic."""
        return self._member.internal_partitions.get(topic)

    async def begin_topic(self, new: NewTopic) -> ErrorCode:
        """Start the creation of a topic.

        After a failure, a client's retry starts it.
        """
        if len(self._begun) < _BEGUN_MAX and new.name not in self._begun:
            self._begun.add(new.name)
            self._waits.tasks.begin(partial(self._create_begun, new))
        governing = self._member.governing
        if governing is not None and governing.has_begun:
            return ErrorCode.leader_not_available
        return ErrorCode.unknown_topic_or_partition

    async def _create_begun(self, new: NewTopic) -> None:
        change = _creation(new, self._new_id())
        try:
            with (
                self._member.supervisor.contained("topic creation"),
                # Another broker may have created the topic, and the client retries.
                suppress(KafkaError),
                trio.move_on_after(_BEGUN_S),
            ):
                await in_session(self._waits.present, change)
        finally:
            self._begun.discard(new.name)

    async def create_topic(self, new: NewTopic, timeout_ms: int = 0) -> Topic:
        """Create a topic, and wait until it is led; raise TOPIC_ALREADY_EXISTS."""
        topic_id = self._new_id()
        await self._waits.write(_creation(new, topic_id), timeout_ms or _NO_TIME_MS)
        count = len(new.assignment)
        await self._waits.seen(lambda: self._is_led(new.name, count), timeout_ms)
        return Topic(
            name=new.name,
            topic_id=topic_id,
            leader_epochs=(0,) * count,
            configs=dict(new.configs),
        )

    async def delete_topic(self, name: str, timeout_ms: int = 0) -> None:
        """Request the deletion of a topic, and wait until clients no longer see it."""
        cache = self._member.broker.metadata_cache
        if cache.topic(name) is None:
            # This includes a topic being deleted, which clients no longer see.
            raise topic_writes.unknown(name)
        await self._waits.write(
            lambda it: topic_writes.request_deletion(it, name),
            timeout_ms or _NO_TIME_MS,
        )
        await self._waits.seen(lambda: cache.topic(name) is None, timeout_ms)

    async def create_partitions(
        self,
        name: str,
        first: int,
        assignment: tuple[tuple[int, ...], ...],
        timeout_ms: int = 0,
    ) -> bool:
        """Add partitions, and wait until they are led; False if the topic changed."""
        done = await self._waits.write(
            lambda it: topic_writes.create_partitions(it, name, first, assignment),
            timeout_ms or _NO_TIME_MS,
        )
        if done:
            count = first + len(assignment)
            await self._waits.seen(lambda: self._is_led(name, count), timeout_ms)
        return done

    async def set_topic_configs(
        self, name: str, configs: Configs, instead_of: Configs | None = None
    ) -> bool:
        """Replace a topic's configs, and apply them here."""
        write = partial(
            self._member.configs.write, f"topics/{name}", configs, instead_of
        )
        done = await self._waits.write(write)
        # The write may also have read values of another broker, which a new session
        # would not report as changed.
        await self._member.broker.topic_changed(name)
        return done

    async def set_configs(
        self,
        kind: ConfigKind,
        name: str,
        configs: Configs,
        instead_of: Configs | None = None,
    ) -> bool:
        """Replace configs, and apply them here.

        Rejects configs of resources: Kafka 3.9 under ZooKeeper has classic groups only.
        """
        if kind is ConfigKind.RESOURCE:
            raise KafkaError(
                ErrorCode.invalid_request, f"no configs of {name} under ZooKeeper"
            )
        write = partial(
            self._member.configs.write, entity_of(kind, name), configs, instead_of
        )
        done = await self._waits.write(write)
        await put_into_effect(self._member.broker, kind, name)
        return done

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validates_only: bool
    ) -> None:
        """Raise an error: Kafka 3.9 supports no feature under ZooKeeper."""
        if updates:
            raise KafkaError(
                ErrorCode.invalid_request, "no feature is supported under ZooKeeper"
            )

    async def alter_acls(
        self, changes: Mapping[ResourcePattern, AlterAcls]
    ) -> Mapping[ResourcePattern, KafkaError]:
        """Replace the entries of patterns, each in one znode; return the failures."""
        acls = self._member.acls
        assert acls is not None, "an authorizer"
        failed: dict[ResourcePattern, KafkaError] = {}
        for pattern, alter in changes.items():
            try:
                await self._waits.write(partial(acls.alter, pattern, alter))
            except KafkaError as error:
                failed[pattern] = error
        self._member.broker.acls_changed(changes)
        return failed

    async def producer_id_block(self) -> range:
        """Reserve the next thousand ids of the cluster."""
        return await self._waits.write(
            lambda it: topic_writes.reserve_producer_ids(it, self._member.broker_id)
        )

    def _is_led(self, name: str, count: int) -> bool:
        return all(
            known_leader(
                self._member.broker.metadata_cache, TopicPartition(name, index)
            )
            >= 0
            for index in range(count)
        )


def _creation(
    new: NewTopic, topic_id: UUID
) -> Callable[[RetryingZnodes], Awaitable[None]]:
    """Return the function that creates a topic's znodes."""
    replicas = map(ReplicaAssignment, new.assignment)
    topic = TopicAssignment(topic_id, dict(enumerate(replicas)))
    return lambda it: topic_writes.create_topic(it, new.name, topic, new.configs)
