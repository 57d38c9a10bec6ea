"""The row of a partition in Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from broker.cluster.metadata_cache import MetadataView
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.metadata import MetadataResponsePartition
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataPartitionState
from broker.protocol.sentinels import NO_LEADER


def partition_row(
    state: UpdateMetadataPartitionState,
    listener: str,
    version: int,
    cache: MetadataView,
) -> MetadataResponsePartition:
    """Describe one partition to a client of ``listener``."""
    error, leader = ErrorCode.none, state.leader
    if not cache.is_reachable(leader, listener):
        elsewhere = leader in cache.brokers and version >= 6
        error = ErrorCode.leader_not_available
        if elsewhere:
            error = ErrorCode.listener_not_found
        leader = NO_LEADER
    return MetadataResponsePartition(
        error_code=error,
        partition_index=state.partition_index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        offline_replicas=tuple(
            replica
            for replica in state.replicas
            if replica in state.offline_replicas
            or not cache.is_reachable(replica, listener)
        ),
    )
