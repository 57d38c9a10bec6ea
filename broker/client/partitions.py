"""Partitions by topic, as requests group them."""

from __future__ import annotations

from collections.abc import Iterable

from broker.protocol.topic_partition import TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of each topic's partitions, as requests group them.

    >>> by_topic([TopicPartition("a", 1), TopicPartition("b", 0)])
    {'a': [1], 'b': [0]}
    """
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
