"""A DeleteRecords that waits until every replica has deleted the records.

Kafka's ``DelayedDeleteRecords``: a partition is complete when its low watermark, the
smallest log start offset of its replicas, has reached the requested offset. Followers
send their log start offsets with each fetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.cluster.partition import Partition
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class Outcome(NamedTuple):
    """The outcome for a partition; the low watermark is -1 after an error."""

    error: ErrorCode
    low_watermark: int = -1


class DelayedDeleteRecords:
    """The partitions of one request, and the outcome of each (`outcome_of`)."""

    __slots__ = ("_offsets", "_otherwise", "_outcomes", "_partitions")

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        self._partitions = partitions
        self._offsets = offsets
        # The outcome of partitions that are still waiting at the end.
        self._otherwise = ErrorCode.request_timed_out
        self._outcomes: dict[TopicPartition, Outcome] = {}

    def try_key(self, key: TopicPartition) -> bool:
        """Complete a partition if possible; True once all are complete. Cost: O(1)."""
        if key not in self._outcomes:
            outcome = _outcome(self._partitions.get(key), self._offsets[key])
            if outcome is not None:
                self._outcomes[key] = outcome
        return len(self._outcomes) == len(self._offsets)

    def on_expiration(self) -> None:
        """Do nothing: partitions without an outcome have timed out."""

    def on_failure(self) -> None:
        """Fail the waiting partitions."""
        self._otherwise = ErrorCode.unknown_server_error

    def outcome_of(self, key: TopicPartition) -> Outcome:
        """Return the outcome of a partition after the wait."""
        return self._outcomes.get(key) or Outcome(self._otherwise)


def _outcome(partition: Partition | None, offset: int) -> Outcome | None:
    """Return the outcome for one partition; None while it has to wait."""
    if partition is None:
        return Outcome(ErrorCode.unknown_topic_or_partition)
    if partition.is_offline:
        return Outcome(ErrorCode.kafka_storage_error)
    if not partition.is_leader:
        return Outcome(ErrorCode.not_leader_or_follower)
    if partition.low_watermark >= offset:
        return Outcome(ErrorCode.none, partition.low_watermark)
    return None
