"""A DeleteRecords that waits until every replica has let go of the records.

Kafka's ``DelayedDeleteRecords``: a partition is done when its low watermark, the
smallest log start offset of its replicas, has reached the offset asked for. Followers
tell theirs with each fetch.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.cluster.partition import Key, Partition
from broker.protocol.errors import ErrorCode


class DelayedDeleteRecords:
    """The partitions of one request: ``outcomes`` holds (low watermark, error)."""

    __slots__ = ("_partitions", "outcomes", "waiting")

    def __init__(
        self, partitions: Mapping[Key, Partition], offsets: Mapping[Key, int]
    ) -> None:
        self._partitions = partitions
        self.waiting = dict(offsets)
        self.outcomes: dict[Key, tuple[int, ErrorCode]] = {}

    def try_complete(self) -> bool:
        """Settle the partitions that can be; True once none waits."""
        for key, offset in tuple(self.waiting.items()):
            partition = self._partitions.get(key)
            if partition is None:
                self._settle(key, -1, ErrorCode.unknown_topic_or_partition)
            elif partition.is_offline:
                self._settle(key, -1, ErrorCode.kafka_storage_error)
            elif not partition.is_leader:
                self._settle(key, -1, ErrorCode.not_leader_or_follower)
            elif partition.low_watermark >= offset:
                self._settle(key, partition.low_watermark, ErrorCode.none)
        return not self.waiting

    def on_expiration(self) -> None:
        """Fail what still waits."""
        self._fail(ErrorCode.request_timed_out)

    def on_failure(self) -> None:
        """Fail what still waits."""
        self._fail(ErrorCode.unknown_server_error)

    def _fail(self, error: ErrorCode) -> None:
        for key in tuple(self.waiting):
            self._settle(key, -1, error)

    def _settle(self, key: Key, low_watermark: int, error: ErrorCode) -> None:
        self.outcomes[key] = (low_watermark, error)
        del self.waiting[key]
