"""Metadata for clients: brokers, topics, leaders, as the controller last sent them.

Kafka's ``ZkMetadataCache``: UpdateMetadata changes it, Metadata reads it. The cache may
lag behind the replicas' state (LeaderAndIsr comes first); responses use it regardless.

An update in steps is made in a copy and takes effect at its end: readers meanwhile see
the previous metadata. The copy shares the topics that the update does not change. A
response that is made in steps reads an immutable view.

Unlike in Kafka, this broker always stays in its own list of live brokers: it is alive
for every client that it serves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from broker.log.steps import Steps, run
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from broker.protocol.sentinels import LEADER_DURING_DELETE
from broker.protocol.topic_partition import TopicPartition
from planes.slices import STEP_ITEMS

# The controller is unknown.
NO_CONTROLLER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """A broker, and the address of each of its listeners: name -> (host, port)."""

    id: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None


class Reached(NamedTuple):
    """A live broker, and its address for clients of one listener."""

    broker: LiveBroker
    host: str
    port: int


@dataclass(slots=True, kw_only=True)
class TopicMetadata:
    """One topic; partitions by index."""

    name: str
    topic_id: UUID | None
    partitions: dict[int, UpdateMetadataPartitionState] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Snapshot:
    """The metadata at one time.

    ``fresh`` are the topics that are not shared with another snapshot; None: all.
    """

    local_id: int
    brokers: dict[int, LiveBroker]
    topics: dict[str, TopicMetadata]
    names: dict[UUID, str]
    fresh: set[str] | None = None

    def copy(self) -> _Snapshot:
        """Return a copy to be changed, which shares all topics."""
        return _Snapshot(
            local_id=self.local_id,
            brokers=self.brokers,
            topics=self.topics.copy(),
            names=self.names.copy(),
            fresh=set(),
        )

    def put(
        self, name: str, topic_id: UUID | None, state: UpdateMetadataPartitionState
    ) -> None:
        """Set the state of one partition."""
        topic = self._own(name)
        if topic is None:
            topic = self._add(TopicMetadata(name=name, topic_id=None))
        if topic_id is not None and topic_id != topic.topic_id:
            self._remove_id(topic)
            former = self.names.get(topic_id)
            if former is not None:
                # An id belongs to one topic, the latest.
                loser = self._own(former)
                assert loser is not None, former
                loser.topic_id = None
            topic.topic_id = topic_id
            self.names[topic_id] = name
        topic.partitions[state.partition_index] = state

    def delete(self, name: str, index: int) -> None:
        """Remove a partition, and with the last partition its topic."""
        topic = self._own(name)
        if topic is None:
            return
        topic.partitions.pop(index, None)
        if not topic.partitions:
            self.remove(topic)

    def remove(self, topic: TopicMetadata) -> None:
        """Remove a topic, unless another topic has its name by now."""
        if self.topics.get(topic.name) is topic:
            self._remove_id(topic)
            del self.topics[topic.name]

    def _own(self, name: str) -> TopicMetadata | None:
        """Return a topic that may be changed: a copy, if the topic is shared."""
        topic = self.topics.get(name)
        if topic is None or self.fresh is None or name in self.fresh:
            return topic
        return self._add(dataclasses.replace(topic, partitions={**topic.partitions}))

    def _add(self, topic: TopicMetadata) -> TopicMetadata:
        self.topics[topic.name] = topic
        if self.fresh is not None:
            self.fresh.add(topic.name)
        return topic

    def _remove_id(self, topic: TopicMetadata) -> None:
        if topic.topic_id is not None:
            del self.names[topic.topic_id]


class MetadataView:
    """The metadata at one time, for a response that is made in steps."""

    def __init__(self, snapshot: _Snapshot, controller_id: int) -> None:
        self._now = snapshot
        self.controller_id = controller_id

    @property
    def brokers(self) -> dict[int, LiveBroker]:
        """The live brokers by ID."""
        return self._now.brokers

    def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic by name."""
        return self._now.topics.get(name)

    def has_partition(self, key: TopicPartition) -> bool:
        """Return whether a controller has sent the partition."""
        name, index = key
        topic = self._now.topics.get(name)
        return topic is not None and index in topic.partitions

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id."""
        return self._now.names.get(topic_id)

    def topics(self) -> Iterator[TopicMetadata]:
        """Iterate over all topics, as they are now."""
        return iter(tuple(self._now.topics.values()))

    def on_listener(self, listener: str) -> list[Reached]:
        """Return the live brokers that have this listener, in order of their IDs."""
        return [
            Reached(broker, *broker.endpoints[listener])
            for _, broker in sorted(self.brokers.items())
            if listener in broker.endpoints
        ]

    def is_alive(self, broker_id: int) -> bool:
        """Return whether a broker is live, by the controller's metadata."""
        return broker_id in self.brokers

    def is_reachable(self, broker_id: int, listener: str) -> bool:
        """Return whether clients of this listener can reach a broker."""
        broker = self.brokers.get(broker_id)
        return broker is not None and listener in broker.endpoints

    def endpoint(self, listener: str, broker_id: int) -> tuple[str, int] | None:
        """Return (host, port) of a live broker's listener, None if it has none."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)


class MetadataCache(MetadataView):
    """Topics and live brokers. ``local`` is this broker, known from the start."""

    def __init__(self, local: LiveBroker, *, controller_id: int) -> None:
        # Called after each update.
        self.listeners: list[Callable[[], None]] = []
        self.local_id = local.id
        first = _Snapshot(
            local_id=local.id, brokers={local.id: local}, topics={}, names={}
        )
        super().__init__(first, controller_id)
        # True: a view has the current snapshot, and the next change is made in a copy.
        self._is_viewed = False
        # The snapshot of an update in progress.
        self._next: _Snapshot | None = None

    def view(self) -> MetadataView:
        """Return the current metadata as an immutable view."""
        self._is_viewed = True
        return MetadataView(self._now, self.controller_id)

    # ---- changing ---------------------------------------------------------------

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply the controller's update in one step; return the deleted partitions.

        During an update in steps, the update is applied to both snapshots.
        """
        if self._next is not None:
            # The draft comes first, so that shared topics are copied before a change.
            run(_taking_over(request, self._next))
        self._leave_views()
        return self._end(request, run(_taking_over(request, self._now)))

    def updating(self, request: UpdateMetadataRequest) -> Steps[list[TopicPartition]]:
        """Apply an update in steps; readers see the result at the end only.

        The copies of whole dictionaries are single steps, but fast.
        """
        assert self._next is None, "an update amid another one"
        draft = self._next = self._now.copy()
        try:
            deleted = yield from _taking_over(request, draft)
        finally:
            self._next = None
        self._now, self._is_viewed = draft, False
        return self._end(request, deleted)

    def _end(
        self, request: UpdateMetadataRequest, deleted: list[TopicPartition]
    ) -> list[TopicPartition]:
        self.controller_id = request.controller_id
        for listener in self.listeners:
            listener()
        return deleted

    def _leave_views(self) -> None:
        """Copy the snapshot if a view has it; the view keeps the old one."""
        if self._is_viewed:
            self._now, self._is_viewed = self._now.copy(), False

    def remove(self, topic: TopicMetadata) -> None:
        """Remove a topic, unless another topic has its name by now."""
        self._leave_views()
        self._now.remove(topic)
        if self._next is not None:
            self._next.remove(topic)

    def check(self) -> None:
        """Assert that names and ids agree."""
        ids = {t.topic_id: t.name for t in self._now.topics.values() if t.topic_id}
        assert ids == self._now.names, (ids, self._now.names)
        assert all(topic.partitions for topic in self._now.topics.values())
        assert self.local_id in self.brokers


def _taking_over(
    request: UpdateMetadataRequest, into: _Snapshot
) -> Steps[list[TopicPartition]]:
    """Apply a request to a snapshot; return the deleted partitions."""
    brokers: dict[int, LiveBroker] = {}
    number = 0
    for broker in request.live_brokers:
        brokers[broker.id] = _live(broker)
        number += 1 + len(broker.endpoints)
        if number >= STEP_ITEMS:
            number = 0
            yield None
    brokers.setdefault(into.local_id, into.brokers[into.local_id])
    into.brokers = brokers
    deleted: list[TopicPartition] = []
    for topic in request.topic_states:
        for state in topic.partition_states:
            if state.leader == LEADER_DURING_DELETE:
                key = TopicPartition(topic.topic_name, state.partition_index)
                into.delete(*key)
                deleted.append(key)
            else:
                into.put(topic.topic_name, topic.topic_id, state)
            number += 1
            if number >= STEP_ITEMS:
                number = 0
                yield None
    return deleted


def _live(broker: UpdateMetadataBroker) -> LiveBroker:
    endpoints = {each.listener: (each.host, each.port) for each in broker.endpoints}
    return LiveBroker(id=broker.id, endpoints=endpoints, rack=broker.rack)
