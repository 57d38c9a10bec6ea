"""The interfaces of a broker's replicas: logs, fetchers, ISR proposals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from broker.cluster.partition import Partition
from broker.log.log import Log
from broker.protocol.topic_partition import TopicPartition


class Logs(Protocol):
    """The store of the partitions' logs."""

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """High watermarks from before this start."""

    def open_log(
        self, key: TopicPartition, topic_id: UUID | None, *, is_new: bool
    ) -> Log:
        """Open the log of a partition, a new one if there is none.

        Raises OSError, or KAFKA_STORAGE_ERROR if it may be in an offline directory.
        """

    def may_be_offline(self, key: TopicPartition) -> bool:
        """Return whether a log unknown here may be in an offline directory."""

    def topic_id(self, key: TopicPartition) -> UUID | None:
        """Return the topic id that the partition's log was created under."""

    def delete_log(self, key: TopicPartition) -> None:
        """Remove the log of a partition, if there is one."""


class Fetchers(Protocol):
    """Fetchers that keep followers up with their leaders."""

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its current leader only."""

    def stop(self, key: TopicPartition) -> None:
        """Stop fetching a partition."""


class IsrChanges(Protocol):
    """The channel of ISR proposals to the controller."""

    def submit(self, partition: Partition) -> None:
        """Send a partition's ``proposed_isr``."""


class NoFetchers:
    """No fetchers, for replicas that are not served: followers do not change."""

    def follow(self, partition: Partition) -> None:
        """Do nothing."""

    def stop(self, key: TopicPartition) -> None:
        """Do nothing."""


class NoIsrChanges:
    """No controller: proposals are dropped."""

    def submit(self, partition: Partition) -> None:
        """Do nothing."""
