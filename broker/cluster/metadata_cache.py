"""What clients are told: brokers, topics, leaders, as the controller last said it.

Kafka's ``ZkMetadataCache``: UpdateMetadata changes it, Metadata reads it. It may lag
behind what the replicas know (LeaderAndIsr comes first), and a broker answers from it
all the same.

Unlike Kafka, this broker stays in its own list of live brokers whatever a controller
says: it is alive to whoever it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from broker.protocol.schemas.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from broker.protocol.sentinels import LEADER_DURING_DELETE
from broker.protocol.topic_partition import TopicPartition

# Nobody has been told of a controller.
NO_CONTROLLER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """A broker and where each of its listeners is reached: name -> (host, port)."""

    id: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None


class Reached(NamedTuple):
    """A live broker, and where clients of one listener reach it."""

    broker: LiveBroker
    host: str
    port: int


@dataclass(slots=True, kw_only=True)
class TopicMetadata:
    """One topic; partitions by index."""

    name: str
    topic_id: UUID | None
    partitions: dict[int, UpdateMetadataPartitionState] = field(default_factory=dict)


class MetadataCache:
    """Topics and live brokers. ``local`` is this broker, known from the start."""

    def __init__(self, local: LiveBroker, *, controller_id: int) -> None:
        # Called whenever a controller has said something.
        self.listeners: list[Callable[[], None]] = []
        self.local_id = local.id
        self.controller_id = controller_id
        self.brokers: dict[int, LiveBroker] = {local.id: local}
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[UUID, str] = {}

    # ---- reading ----------------------------------------------------------------

    def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic by name."""
        return self._topics.get(name)

    def knows(self, key: TopicPartition) -> bool:
        """Say whether a controller has told of the partition."""
        name, index = key
        topic = self._topics.get(name)
        return topic is not None and index in topic.partitions

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id."""
        return self._names.get(topic_id)

    def topics(self) -> Iterator[TopicMetadata]:
        """Iterate over all topics, as they are now."""
        return iter(tuple(self._topics.values()))

    def on_listener(self, listener: str) -> list[Reached]:
        """Return the live brokers that have this listener, by their numbers."""
        return [
            Reached(broker, *broker.endpoints[listener])
            for _, broker in sorted(self.brokers.items())
            if listener in broker.endpoints
        ]

    def is_alive(self, broker_id: int) -> bool:
        """Tell whether a broker lives, as far as a controller has told."""
        return broker_id in self.brokers

    def is_reachable(self, broker_id: int, listener: str) -> bool:
        """Tell whether a client of this listener can be sent to a broker."""
        broker = self.brokers.get(broker_id)
        return broker is not None and listener in broker.endpoints

    def endpoint(self, listener: str, broker_id: int) -> tuple[str, int] | None:
        """Return (host, port) of a live broker's listener, None if it has none."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    # ---- changing ---------------------------------------------------------------

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Take over what the controller says; return the partitions deleted."""
        self.controller_id = request.controller_id
        local = self.brokers[self.local_id]
        self.brokers = {
            broker.id: LiveBroker(
                id=broker.id,
                endpoints={
                    endpoint.listener: (endpoint.host, endpoint.port)
                    for endpoint in broker.endpoints
                },
                rack=broker.rack,
            )
            for broker in request.live_brokers
        }
        self.brokers.setdefault(self.local_id, local)
        deleted = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                if state.leader == LEADER_DURING_DELETE:
                    key = TopicPartition(topic.topic_name, state.partition_index)
                    self._delete(*key)
                    deleted.append(key)
                else:
                    self._put(topic.topic_name, topic.topic_id, state)
        for listener in self.listeners:
            listener()
        return deleted

    def _put(
        self, name: str, topic_id: UUID | None, state: UpdateMetadataPartitionState
    ) -> None:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = TopicMetadata(name=name, topic_id=None)
        if topic_id is not None and topic_id != topic.topic_id:
            self._forget_id(topic)
            former = self._names.get(topic_id)
            if former is not None:
                # An id names one topic: the one that was told last.
                self._topics[former].topic_id = None
            topic.topic_id = topic_id
            self._names[topic_id] = name
        topic.partitions[state.partition_index] = state

    def _delete(self, name: str, index: int) -> None:
        topic = self._topics.get(name)
        if topic is None:
            return
        topic.partitions.pop(index, None)
        if not topic.partitions:
            self._forget_id(topic)
            del self._topics[name]

    def forget(self, topic: TopicMetadata) -> None:
        """Forget a topic that no longer exists, unless there is another by now."""
        if self._topics.get(topic.name) is topic:
            self._forget_id(topic)
            del self._topics[topic.name]

    def _forget_id(self, topic: TopicMetadata) -> None:
        if topic.topic_id is not None:
            del self._names[topic.topic_id]

    def check(self) -> None:
        """Assert that names and ids agree."""
        ids = {t.topic_id: t.name for t in self._topics.values() if t.topic_id}
        assert ids == self._names, (ids, self._names)
        assert all(topic.partitions for topic in self._topics.values())
        assert self.local_id in self.brokers
