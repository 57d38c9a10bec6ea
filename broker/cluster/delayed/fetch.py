"""A Fetch that waits until there is enough to read, or something to tell.

Kafka's ``DelayedFetch``. It completes when ``min_bytes`` are readable, when a partition
is no longer one that this reader may be answered from (leadership, epoch, deletion),
when its offset has fallen outside the log, or when that lies in an older segment than
the end of what can be read (Kafka's case F): such a reader has fallen behind, and what
is left of one segment could stay below ``min_bytes`` for good. At its deadline it
completes with whatever there is. It keeps no bytes: the reader reads again afterwards.
What is held back from the reader by a quota counts for nothing.

A change under one of its partitions wakes the reader, which tries in a turn of its own:
what it costs to look at all its partitions is not the producer's to pay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from broker.cluster.partition import Partition
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition


class Wanted(NamedTuple):
    """What a Fetch asks of one partition."""

    key: TopicPartition
    offset: int
    max_bytes: int
    current_leader_epoch: int


class DelayedFetch:
    """One Fetch in purgatory. Cost of a try: O(partitions) until enough is found."""

    __slots__ = (
        "_is_follower",
        "_is_held_back",
        "_leader_only",
        "_min_bytes",
        "_partitions",
        "_wanted",
    )

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        wanted: Sequence[Wanted],
        *,
        min_bytes: int,
        is_follower: bool,
        leader_only: bool,
        is_held_back: Callable[[Partition], bool] | None = None,
    ) -> None:
        self._partitions = partitions
        self._wanted = wanted
        self._min_bytes = min_bytes
        self._is_follower = is_follower
        self._leader_only = leader_only
        self._is_held_back = is_held_back

    def try_complete(self) -> bool:
        """Return True if a read now would not come back with too little."""
        found_bytes = 0
        for each in self._wanted:
            partition = self._partitions.get(each.key)
            if partition is None or partition.is_offline:
                return True
            try:
                partition.check_epoch(
                    each.current_leader_epoch, leader_only=self._leader_only
                )
                if self._holds_back(partition, each.offset):
                    continue
                if self._is_behind(partition, each.offset):
                    return True
                region = partition.read(
                    each.offset,
                    each.max_bytes,
                    is_follower=self._is_follower,
                    min_one=True,
                )
            except KafkaError:
                return True
            if region is not None:
                found_bytes += region.size
                if found_bytes >= self._min_bytes:
                    return True
        return False

    def _holds_back(self, partition: Partition, offset: int) -> bool:
        """Say whether a quota keeps from this reader what it could read."""
        if self._is_held_back is None:
            return False
        end = partition.read_end(is_follower=self._is_follower)
        return offset <= end and self._is_held_back(partition)

    def _is_behind(self, partition: Partition, offset: int) -> bool:
        """Say whether the reader cannot wait for more where it is."""
        end = partition.read_end(is_follower=self._is_follower)
        if offset >= end:
            return offset > end
        segments = partition.log.segments
        return segments.index_of(offset) < segments.index_of(end)

    def on_expiration(self) -> None:
        """The reader is answered with what there is."""

    def on_failure(self) -> None:
        """The reader reads again, and meets the failure itself."""
