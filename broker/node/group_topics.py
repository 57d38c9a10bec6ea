"""The cluster's topics for consumer groups, from the metadata cache."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from broker.cluster.metadata_cache import MetadataCache, TopicMetadata
from broker.groups.consumer.subscribed_topics import KnownTopic
from broker.groups.consumer.topic_hashes import topic_hash


class GroupTopics:
    """Topics with an id; ``version`` counts the metadata updates of controllers."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._known: dict[str, KnownTopic] = {}
        self.version = 0
        cache.listeners.append(self._changed)

    def _changed(self) -> None:
        self.version += 1
        self._known.clear()

    def find(self, name: str) -> KnownTopic | None:
        """Return a topic with an id; None if there is none of this name."""
        found = self._known.get(name)
        topic = self._cache.topic(name)
        if topic is None or topic.topic_id is None:
            return None
        if found is None or found.topic_id != topic.topic_id:
            found = self._known[name] = self._read(topic, topic.topic_id)
        return found

    def _read(self, topic: TopicMetadata, topic_id: UUID) -> KnownTopic:
        brokers = self._cache.brokers
        racks = []
        for _, state in sorted(topic.partitions.items()):
            known = [brokers[it].rack for it in state.replicas if it in brokers]
            racks.append([rack for rack in known if rack is not None])
        digest = topic_hash(topic_id, topic.name, racks)
        return KnownTopic(topic_id, len(racks), digest)

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic."""
        return self._cache.name(topic_id)

    def names(self) -> Iterator[str]:
        """Iterate over the names of all present topics."""
        return (topic.name for topic in self._cache.topics())
