"""A Fetch that waits until there is enough to read, or a change to report.

Kafka's ``DelayedFetch``. A fetch completes when ``min_bytes`` are readable, or when a
partition can no longer be read here (leadership, epoch, deletion). It also completes
when an offset is outside the log, or in an older segment than the end of the readable
part (Kafka's case F): the rest of an old segment could stay below ``min_bytes`` for
ever. At the deadline a fetch completes with the available bytes. It stores no bytes:
the handler reads again afterwards. Bytes throttled by a quota are not counted.

A change of a partition wakes the waiting handler, which examines that partition in a
turn of its own. The readable bytes of each partition are stored and summed, so that the
cost of a change does not depend on the number of partitions. Partitions throttled by a
quota are examined again at each change, since the passage of time releases them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from broker.cluster.partition import Partition
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition


class Wanted(NamedTuple):
    """The request of a Fetch for one partition."""

    offset: int
    max_bytes: int
    current_leader_epoch: int


class DelayedFetch:
    """One Fetch in purgatory. Cost of a try: O(1 + throttled partitions)."""

    __slots__ = (
        "_committed",
        "_found_bytes",
        "_held_back",
        "_is_follower",
        "_is_held_back",
        "_leader_only",
        "_min_bytes",
        "_partitions",
        "_sum_bytes",
        "_wanted",
    )

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        wanted: Mapping[TopicPartition, Wanted],
        *,
        min_bytes: int,
        is_follower: bool,
        leader_only: bool,
        committed: bool = False,
        is_held_back: Callable[[Partition], bool] | None = None,
    ) -> None:
        self._partitions = partitions
        self._wanted = wanted
        self._min_bytes = min_bytes
        self._is_follower = is_follower
        self._leader_only = leader_only
        self._committed = committed
        self._is_held_back = is_held_back
        # Readable bytes by partition, for partitions that have any.
        self._found_bytes: dict[TopicPartition, int] = {}
        self._sum_bytes = 0
        self._held_back: dict[TopicPartition, None] = {}

    @property
    def held_back(self) -> Collection[TopicPartition]:
        """Partitions whose records were throttled by a quota."""
        return self._held_back

    def try_key(self, key: TopicPartition) -> bool:
        """Examine one partition; True if the fetch can complete now."""
        try:
            found_bytes = self._readable_bytes(key)
        except KafkaError:
            found_bytes = None
        if found_bytes is None:
            return True
        self._sum_bytes += found_bytes - self._found_bytes.pop(key, 0)
        if found_bytes:
            self._found_bytes[key] = found_bytes
        return self._sum_bytes >= self._min_bytes

    def _readable_bytes(self, key: TopicPartition) -> int | None:
        """Return the bytes to read of a partition; None if the reader cannot wait."""
        wanted, partition = self._wanted[key], self._partitions.get(key)
        if partition is None or partition.is_offline:
            return None
        partition.check_epoch(
            wanted.current_leader_epoch, leader_only=self._leader_only
        )
        self._held_back.pop(key, None)
        if self._holds_back(partition, wanted.offset):
            self._held_back[key] = None
            return 0
        if self._is_behind(partition, wanted.offset):
            return None
        region = partition.read(
            wanted.offset,
            wanted.max_bytes,
            is_follower=self._is_follower,
            min_one=True,
            committed=self._committed,
        )
        return 0 if region is None else region.size

    def _holds_back(self, partition: Partition, offset: int) -> bool:
        """Return whether a quota throttles readable records for this reader."""
        if self._is_held_back is None:
            return False
        end = partition.read_end(is_follower=self._is_follower)
        return offset <= end and self._is_held_back(partition)

    def _is_behind(self, partition: Partition, offset: int) -> bool:
        """Return whether the offset is outside the log or in an older segment."""
        end = partition.read_end(
            is_follower=self._is_follower, committed=self._committed
        )
        if offset >= end:
            return offset > end
        segments = partition.log.segments
        return segments.index_of(offset) < segments.index_of(end)

    def on_expiration(self) -> None:
        """Do nothing: the handler responds with the available records."""

    def on_failure(self) -> None:
        """Do nothing: the handler reads again, and raises the error itself."""
