"""Transaction markers, written to the partitions that this broker leads.

Follows ``KafkaApis.handleWriteTxnMarkersRequest``. A transaction coordinator calls
`TransactionMarkers.write` for each partition of an ended transaction, through
WriteTxnMarkers or, in the same broker, directly. A repeated marker is written again and
has no effect, so a coordinator may retry until it has a response.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC
from broker.cluster.partition import Partition
from broker.cluster.replica_manager import ReplicaManager
from broker.groups.group_coordinator import GroupCoordinator
from broker.log.log import Appended
from broker.log.transactions import Marker, marker_batch
from broker.node.flush_shell import QueuedFlushes
from broker.node.replicated_appends import ReplicatedAppends
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import NS_PER_MS, Instant


class EndedTransaction(NamedTuple):
    """A transaction with its coordinator's decision to commit or abort."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


class TransactionMarkers:
    """Writer of markers with acks=all.

    In ``__consumer_offsets`` a marker also publishes or drops the offsets of the
    transaction.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        flushes: QueuedFlushes,
        groups: GroupCoordinator,
        clock: Callable[[], Instant],
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._appends = ReplicatedAppends(replicas, flushes, lambda: clock().ns)

    def write(
        self,
        key: TopicPartition,
        ended: EndedTransaction,
        timeout_ms: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Write one partition's marker; ``done`` is called once, possibly at once.

        Errors are those of a Produce, INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, and UNKNOWN_TOPIC_OR_PARTITION if this broker
        has no replica. Takes constant time.
        """
        partition = self._replicas.partitions.get(key)
        if partition is None or partition.is_offline:
            done(ErrorCode.unknown_topic_or_partition)
            return
        is_of_groups = key.topic == GROUP_METADATA_TOPIC
        if is_of_groups and not self._groups.takes_markers(key.partition):
            # The coordinator of the transaction retries.
            done(ErrorCode.not_leader_or_follower)
            return
        now_ms = self._clock().wall_ms
        marker = Marker(not ended.is_commit, ended.coordinator_epoch)
        batch = marker_batch(ended.producer_id, ended.producer_epoch, marker, now_ms)

        def append(led: Partition) -> Appended:
            return led.append_of_coordinator(
                batch, now_ms, transaction_version=ended.transaction_version
            )

        def replicated(error: ErrorCode) -> None:
            if error is not ErrorCode.none or not is_of_groups:
                done(error)
                return
            self._groups.complete_transaction(
                key.partition,
                ended.producer_id,
                is_commit=ended.is_commit,
                done=partial(done, error),
            )

        self._appends.append(key, append, timeout_ms * NS_PER_MS, replicated)
