"""Rate limits of throttled replicas, for sending and for fetching (KIP-73).

Kafka's ``ReplicationQuotaManager``, one for bytes sent to followers and one for bytes
fetched from leaders; a third one bounds all moves between log directories. A topic's
config lists its throttled replicas. Only their bytes count, and only replicas outside
the ISR are throttled; otherwise a quota would remove replicas from the ISR. Sent bytes
exclude the headers of the response, some tens of bytes that Kafka includes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.cluster.topic_settings import TopicSettings
from broker.config import (
    ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM,
    ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS,
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
    REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
    REPLICATION_QUOTA_WINDOW_NUM,
    REPLICATION_QUOTA_WINDOW_SIZE_SECONDS,
    BrokerConfig,
    Key,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.windowed_rate import ByteRate, Windows

_NS_PER_MS: Final = 1_000_000
_MS_PER_S: Final = 1000


class Quota(Protocol):
    """The check before a transfer of bytes, and the count after it."""

    def holds_back(self, key: TopicPartition, *, in_sync: bool) -> bool:
        """Return whether a replica may move nothing now."""

    def note(self, key: TopicPartition, count: int) -> None:
        """Count the bytes that a replica has moved."""


class ReplicationQuota:
    """A quota over the bytes of throttled replicas.

    ``bound_per_s`` is called for each check, since the config is dynamic.
    """

    def __init__(
        self,
        rate: ByteRate,
        *,
        bound_per_s: Callable[[], int],
        is_throttled: Callable[[TopicPartition], bool],
        now_ns: Callable[[], int],
    ) -> None:
        self._rate = rate
        self._bound_per_s = bound_per_s
        self._is_throttled = is_throttled
        self._now_ns = now_ns
        # Bytes of all replicas, throttled or not.
        self.moved_bytes = 0

    def holds_back(self, key: TopicPartition, *, in_sync: bool) -> bool:
        """Return whether a replica may move nothing now."""
        return (
            not in_sync
            and self._is_throttled(key)
            and self.per_s() > self._bound_per_s()
        )

    def note(self, key: TopicPartition, count: int) -> None:
        """Count the bytes that a replica has moved."""
        self.moved_bytes += count
        if self._is_throttled(key):
            self._rate.record(count, self._now_ns() // _NS_PER_MS)

    def per_s(self) -> float:
        """Return the bytes per second of throttled replicas."""
        return self._rate.per_s(self._now_ns() // _NS_PER_MS)


class Quotas(NamedTuple):
    """Kafka's quotas: for leaders' sends, followers' fetches, moves between disks."""

    leader: ReplicationQuota
    follower: ReplicationQuota
    moves: ReplicationQuota


def replication_quotas(
    config: Callable[[], BrokerConfig],
    settings: TopicSettings,
    now_ns: Callable[[], int],
) -> Quotas:
    """Return a broker's quotas; their windows are fixed at this time."""

    def quota(
        bound: Key[int],
        is_throttled: Callable[[TopicPartition], bool],
        count: Key[int] = REPLICATION_QUOTA_WINDOW_NUM,
        size: Key[int] = REPLICATION_QUOTA_WINDOW_SIZE_SECONDS,
    ) -> ReplicationQuota:
        windows = Windows(count=config()[count], size_ms=config()[size] * _MS_PER_S)
        return ReplicationQuota(
            ByteRate(windows),
            bound_per_s=lambda: config()[bound],
            is_throttled=is_throttled,
            now_ns=now_ns,
        )

    return Quotas(
        leader=quota(LEADER_REPLICATION_THROTTLED_RATE, settings.throttles_leader),
        follower=quota(
            FOLLOWER_REPLICATION_THROTTLED_RATE, settings.throttles_follower
        ),
        moves=quota(
            REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
            lambda key: True,
            ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM,
            ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS,
        ),
    )
