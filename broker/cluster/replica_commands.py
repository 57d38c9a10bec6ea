"""A controller's commands to replicas, one by one, and the response to all of them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.topic_partition import TopicPartition


def states_of(
    request: LeaderAndIsrRequest,
) -> Iterator[tuple[LeaderAndIsrTopicState, LeaderAndIsrPartitionState]]:
    """Iterate over the partitions to lead or follow, with their topics."""
    return (
        (topic, state)
        for topic in request.topic_states
        for state in topic.partition_states
    )


def stops_of(
    request: StopReplicaRequest,
) -> Iterator[tuple[TopicPartition, StopReplicaPartitionState]]:
    """Iterate over the partitions to stop."""
    return (
        (TopicPartition(topic.topic_name, state.partition_index), state)
        for topic in request.topic_states
        for state in topic.partition_states
    )


def leadership_answer(errors: list[LeaderAndIsrPartitionError]) -> LeaderAndIsrResponse:
    """Return the response with these outcomes."""
    return LeaderAndIsrResponse(
        error_code=ErrorCode.none, partition_errors=tuple(errors)
    )


def stop_answer(errors: list[StopReplicaPartitionError]) -> StopReplicaResponse:
    """Return the response with these outcomes."""
    return StopReplicaResponse(
        error_code=ErrorCode.none, partition_errors=tuple(errors)
    )
