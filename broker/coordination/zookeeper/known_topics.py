"""The topics known to a member of a cluster from its controller's metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from broker.cluster.cluster_topics import Topic
from broker.cluster.metadata_cache import MetadataCache
from broker.protocol.sentinels import NO_EPOCH, NO_LEADER
from broker.protocol.topic_partition import TopicPartition

_NO_ID = UUID(int=0)


class KnownTopics(Mapping[str, Topic]):
    """View of the metadata cache; ``configs_of`` returns a topic's configs."""

    def __init__(
        self,
        cache: MetadataCache,
        configs_of: Callable[[str], Mapping[str, str] | None],
    ) -> None:
        self._cache = cache
        self._configs_of = configs_of

    def __getitem__(self, name: str) -> Topic:
        found = self._cache.topic(name)
        if found is None:
            raise KeyError(name)
        states = found.partitions
        return Topic(
            name=name,
            topic_id=found.topic_id or _NO_ID,
            # Partitions are sent one by one, so some indexes may be missing.
            leader_epochs=tuple(
                states[index].leader_epoch if index in states else NO_EPOCH
                for index in range(max(states) + 1)
            ),
            configs=self._configs_of(name) or {},
        )

    def __iter__(self) -> Iterator[str]:
        return (topic.name for topic in self._cache.topics())

    def __len__(self) -> int:
        return sum(1 for _ in self._cache.topics())


def known_leader(cache: MetadataCache, key: TopicPartition) -> int:
    """Return the leader in this broker's metadata, or `NO_LEADER`."""
    topic = cache.topic(key.topic)
    state = None if topic is None else topic.partitions.get(key.partition)
    return NO_LEADER if state is None else state.leader
