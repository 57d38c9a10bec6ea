"""A replica of one partition without its broker: log, role and fetcher."""

from __future__ import annotations

from typing import Any, Final

from broker.cluster.follower import SyncRules
from broker.cluster.partition import Partition
from broker.config import (
    REPLICA_FETCH_BACKOFF_MS,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_MIN_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
)
from broker.log import trimming
from broker.log.steps import run
from broker.protocol.records.batch import BatchHeader
from broker.protocol.topic_partition import TopicPartition
from broker.replication.replica_fetcher import ReplicaFetcher
from tests.broker.log import witness
from tests.broker.log.witness import NOW_MS

T: Final = TopicPartition("t", 0)
CONFIG: Final = {"segment_bytes": 400, "index_interval_bytes": 150}
FETCHING: Final = {
    REPLICA_FETCH_BACKOFF_MS: 0,
    REPLICA_FETCH_MAX_BYTES: 1 << 20,
    REPLICA_FETCH_MIN_BYTES: 1,
    REPLICA_FETCH_RESPONSE_MAX_BYTES: 1 << 20,
    REPLICA_FETCH_WAIT_MAX_MS: 0,
}
# Time stands still: a replica that was in sync once stays in sync.
EVERYBODY_LIVES: Final = SyncRules(
    now_ns=lambda: 0, lag_ns=lambda: 0, is_alive=lambda broker: True
)
# The functions of `witness` have no annotations.
LOGS: Final[Any] = witness


class Nobody:
    """Substitute for requests that wait for records: there are none."""

    def note_append(self, partition: Partition) -> None:
        """Do nothing."""

    def note_flush(self, partition: Partition) -> None:
        """Do nothing."""


class NoQuota:
    """Replication quota that never throttles."""

    def holds_back(self, key: TopicPartition, *, in_sync: bool) -> bool:
        """Return False."""
        return False

    def note(self, key: TopicPartition, count: int) -> None:
        """Count nothing."""


class Replica:
    """A broker's replica, for one run of the broker."""

    def __init__(
        self, number: int, disk: Any = None, *, high_watermark: int = 0, **opening: int
    ) -> None:
        self.number = number
        self.log = LOGS.open_log(disk, opening=opening, **CONFIG)
        self.partition = Partition(
            T,
            None,
            self.log,
            local_id=number,
            min_insync=lambda: 2,
            sync=EVERYBODY_LIVES,
            high_watermark=high_watermark,
        )
        fetching: Any = FETCHING
        self.fetcher = ReplicaFetcher(
            number, lambda: fetching, Nobody(), NoQuota(), lambda: 0, lambda: NOW_MS
        )

    def hears(self, word: Any) -> None:
        """Take the role given in a state from the controller."""
        if word.leader_epoch <= self.partition.leader_epoch:
            return
        if word.leader == self.number:
            self.partition.make_leader(word)
            self.fetcher.stop(T)
        else:
            self.partition.make_follower(word)
            self.fetcher.follow(self.partition)

    def cut(self) -> None:
        """Truncate the log if a cut is due, as the fetcher's task does."""
        for each in run(self.fetcher.to_cut()).values():
            assert each.cut is not None
            if each.cut.kept_below < self.log.recovery_point:
                floor = trimming.recovery_floor(self.log, each.cut.kept_below)
                self.log.durability.lower(floor)
            run(self.fetcher.cut(each))
            run(trimming.cut_in_steps(self.log))

    def headers(self) -> list[BatchHeader]:
        """Return the headers of all batches in the log."""
        return [
            header
            for segment in self.log.segments
            for _, header in segment.headers()
            if header.last_offset >= self.log.log_start_offset
        ]
