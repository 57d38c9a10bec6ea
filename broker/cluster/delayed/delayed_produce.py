"""A Produce with acks=-1 that waits for the in-sync replicas.

Kafka's ``DelayedProduce``. Each partition waits for the high watermark to reach the end
of the appended records. A partition that has another leader by then fails with
NOT_LEADER_OR_FOLLOWER at once, and the other partitions continue to wait. At the
deadline, waiting partitions fail with REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.cluster.delayed.required import Required
from broker.cluster.partition import Partition
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class DelayedProduce:
    """The partitions of one Produce, and the outcome of each (`error_of`).

    ``required`` has for each partition the records that all in-sync replicas must have.
    """

    __slots__ = ("_errors", "_otherwise", "_partitions", "_required")

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        required: Mapping[TopicPartition, Required],
    ) -> None:
        self._errors: dict[TopicPartition, ErrorCode] = {}
        # The outcome of partitions that are still waiting at the end.
        self._otherwise = ErrorCode.request_timed_out
        self._required = required
        self._partitions = partitions

    def try_key(self, key: TopicPartition) -> bool:
        """Complete a partition if possible; True once all are complete. Cost: O(1)."""
        if key not in self._errors:
            partition = self._partitions.get(key)
            outcome = (
                ErrorCode.unknown_topic_or_partition
                if partition is None
                else _outcome(partition, self._required[key])
            )
            if outcome is not None:
                self._errors[key] = outcome
        return len(self._errors) == len(self._required)

    def on_expiration(self) -> None:
        """Do nothing: partitions without an outcome have timed out."""

    def on_failure(self) -> None:
        """Fail the waiting partitions: their replication is unknown."""
        self._otherwise = ErrorCode.unknown_server_error

    def error_of(self, key: TopicPartition) -> ErrorCode:
        """Return the outcome of a partition after the wait."""
        return self._errors.get(key, self._otherwise)


def _outcome(partition: Partition, required: Required) -> ErrorCode | None:
    """Return the outcome for one partition; None while it has to wait."""
    outcome = partition.acknowledged(required.offset)
    if outcome in (None, ErrorCode.none) and not required.still_stands(partition.log):
        return ErrorCode.not_leader_or_follower
    return outcome
