"""A consumer's calls to its user when partitions are assigned or revoked.

Kafka's ``ConsumerRebalanceListener``. The calls are made while the user is in a poll,
never during the processing of records, and the poll ends after them. The poll raises an
exception of a listener.
"""

from __future__ import annotations

from typing import Protocol

from broker.protocol.topic_partition import TopicPartition


class RebalanceListener(Protocol):
    """Listener of rebalances; every call may commit, seek, and wait."""

    async def on_partitions_revoked(
        self, partitions: frozenset[TopicPartition]
    ) -> None:
        """Release partitions that are still assigned: the last chance to commit."""

    async def on_partitions_assigned(
        self, partitions: frozenset[TopicPartition]
    ) -> None:
        """Begin with newly assigned partitions."""

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Drop partitions that other members may have by now: too late to commit."""


class SilentListener:
    """A listener without any effect."""

    async def on_partitions_revoked(
        self, partitions: frozenset[TopicPartition]
    ) -> None:
        """Do nothing."""

    async def on_partitions_assigned(
        self, partitions: frozenset[TopicPartition]
    ) -> None:
        """Do nothing."""

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Do nothing."""
