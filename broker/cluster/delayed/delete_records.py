"""A DeleteRecords that waits until every replica has let go of the records.

Kafka's ``DelayedDeleteRecords``: a partition is done when its low watermark, the
smallest log start offset of its replicas, has reached the offset asked for. Followers
tell theirs with each fetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.cluster.partition import Partition
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition


class Outcome(NamedTuple):
    """What is answered for a partition; without a low watermark, -1."""

    error: ErrorCode
    low_watermark: int = -1


class DelayedDeleteRecords:
    """The partitions of one request, and in ``outcomes`` what became of each."""

    __slots__ = ("_partitions", "outcomes", "waiting")

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        self._partitions = partitions
        self.waiting = dict(offsets)
        self.outcomes: dict[TopicPartition, Outcome] = {}

    def try_complete(self) -> bool:
        """Settle the partitions that can be; True once none waits."""
        for key, offset in tuple(self.waiting.items()):
            partition = self._partitions.get(key)
            if partition is None:
                self._settle(key, Outcome(ErrorCode.unknown_topic_or_partition))
            elif partition.is_offline:
                self._settle(key, Outcome(ErrorCode.kafka_storage_error))
            elif not partition.is_leader:
                self._settle(key, Outcome(ErrorCode.not_leader_or_follower))
            elif partition.low_watermark >= offset:
                self._settle(key, Outcome(ErrorCode.none, partition.low_watermark))
        return not self.waiting

    def on_expiration(self) -> None:
        """Fail what still waits."""
        self._fail(ErrorCode.request_timed_out)

    def on_failure(self) -> None:
        """Fail what still waits."""
        self._fail(ErrorCode.unknown_server_error)

    def _fail(self, error: ErrorCode) -> None:
        for key in tuple(self.waiting):
            self._settle(key, Outcome(error))

    def _settle(self, key: TopicPartition, outcome: Outcome) -> None:
        self.outcomes[key] = outcome
        del self.waiting[key]
