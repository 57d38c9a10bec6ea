"""Records per second of partitions, from two readings of their end offsets."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.protocol.topic_partition import TopicPartition

# Partitions whose end offsets are read.
PARTITIONS_MAX: Final = 20_000


class HotPartition(NamedTuple):
    """A partition, its records per second, and its share of those of all partitions."""

    partition: TopicPartition
    per_s: float
    share: float


class Reading(NamedTuple):
    """An end offset at an instant of Trio's clock."""

    at_s: float
    end: int


class RecordRates:
    """Rates between the two newest readings of each partition."""

    def __init__(self) -> None:
        # The longest time between two readings; None before the second one.
        self.span_s: float | None = None
        self._readings: Mapping[TopicPartition, Reading] = {}
        self._of_partitions: Mapping[TopicPartition, float] = {}
        self._of_topics: Mapping[str, float] = {}

    def record(self, readings: Mapping[TopicPartition, Reading]) -> None:
        """Store readings; the end of a recreated topic may be lower."""
        before, self._readings = self._readings, readings
        rates: dict[TopicPartition, float] = {}
        topics: dict[str, float] = {}
        spans: list[float] = []
        for it, (at_s, end) in readings.items():
            if it in before and at_s > before[it].at_s:
                spans.append(at_s - before[it].at_s)
                per_s = max(end - before[it].end, 0) / spans[-1]
                rates[it] = per_s
                topics[it.topic] = topics.get(it.topic, 0.0) + per_s
        self.span_s = max(spans, default=None)
        self._of_partitions, self._of_topics = rates, topics

    def of_partition(self, partition: TopicPartition) -> float | None:
        """Return the records per second of a partition, None if unknown."""
        return self._of_partitions.get(partition)

    def of_topic(self, name: str) -> float | None:
        """Return the records per second of a topic, None if unknown."""
        return self._of_topics.get(name)

    def hottest(self, count: int) -> list[HotPartition]:
        """Return the busiest partitions with records, busiest first."""
        total = sum(self._of_partitions.values())
        found = heapq.nsmallest(
            count,
            ((-per_s, it) for it, per_s in self._of_partitions.items() if per_s > 0),
        )
        return [HotPartition(it, -per_s, -per_s / total) for per_s, it in found]
