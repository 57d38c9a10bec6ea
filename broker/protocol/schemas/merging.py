"""Merging of a controller's queued requests to one broker into fewer requests.

As in LinkedIn's fork of Kafka, a broker that responds slowly receives only the latest
state of a partition, not every earlier one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

from broker.protocol.schemas.composing import ControllerRequests
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from broker.protocol.schemas.stop_replica_schema import StopReplicaRequest
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

_Request: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


def merging(waiting: Iterable[_Request]) -> Generator[None, None, list[_Request]]:
    """Merge the requests to one broker, with one step per merged partition.

    Between two StopReplica requests, which are kept, at most one LeaderAndIsr and one
    UpdateMetadata remain, in this order. All requests must be from one controller, and
    for one registration of the broker.
    """
    found: list[_Request] = []
    leaders: list[LeaderAndIsrRequest] = []
    metadata: list[UpdateMetadataRequest] = []
    for request in waiting:
        if isinstance(request, LeaderAndIsrRequest):
            leaders.append(request)
        elif isinstance(request, UpdateMetadataRequest):
            metadata.append(request)
        else:
            found += yield from _of_leaders(leaders)
            found += yield from _of_metadata(metadata)
            found.append(request)
            leaders, metadata = [], []
    found += yield from _of_leaders(leaders)
    found += yield from _of_metadata(metadata)
    return found


def _of_leaders(
    requests: list[LeaderAndIsrRequest],
) -> Generator[None, None, list[LeaderAndIsrRequest]]:
    """Merge LeaderAndIsr requests; a partition is new if any request marks it new."""
    if len(requests) < 2:
        return requests
    states: dict[str, dict[int, LeaderAndIsrPartitionState]] = {}
    for request in requests:
        for topic in request.topic_states:
            of_topic = states.setdefault(topic.topic_name, {})
            for state in topic.partition_states:
                before = of_topic.get(state.partition_index)
                if before is not None and before.is_new and not state.is_new:
                    state = replace(state, is_new=True)
                of_topic[state.partition_index] = state
                yield
    live = {it.broker_id: it for request in requests for it in request.live_leaders}
    last = requests[-1]
    partition_states = {
        topic: tuple(of_topic.values()) for topic, of_topic in states.items()
    }
    return [
        _as(last, requests).leader_and_isr(
            partition_states, live.values(), kind=last.type
        )
    ]


def _of_metadata(
    requests: list[UpdateMetadataRequest],
) -> Generator[None, None, list[UpdateMetadataRequest]]:
    """Merge UpdateMetadata requests; the live brokers are those of the last request."""
    if len(requests) < 2:
        return requests
    states: dict[str, dict[int, UpdateMetadataPartitionState]] = {}
    for request in requests:
        for topic in request.topic_states:
            of_topic = states.setdefault(topic.topic_name, {})
            for state in topic.partition_states:
                of_topic[state.partition_index] = state
                yield
    last = requests[-1]
    partition_states = {
        topic: tuple(of_topic.values()) for topic, of_topic in states.items()
    }
    return [_as(last, requests).update_metadata(partition_states, last.live_brokers)]


def _as(
    last: LeaderAndIsrRequest | UpdateMetadataRequest,
    requests: Iterable[LeaderAndIsrRequest | UpdateMetadataRequest],
) -> ControllerRequests:
    """Return a builder of requests like these, with the same topic ids."""
    topic_ids: Mapping[str, UUID | None] = {
        topic.topic_name: topic.topic_id
        for request in requests
        for topic in request.topic_states
    }
    return ControllerRequests(
        controller_id=last.controller_id,
        controller_epoch=last.controller_epoch,
        broker_epoch=last.broker_epoch,
        topic_ids=topic_ids,
    )
