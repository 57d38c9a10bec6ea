"""OffsetCommit: a consumer says how far it has come.

Versions: 0-9 advertised, 2-9 served.
Behaviour: answered when the offsets are in ``__consumer_offsets``, replicated as
acks=all is; partitions that do not exist fail alone.
Version notes: 2 to 4 carry a retention of their own (removed by KIP-211); 6 leader
epochs (KIP-320); 7 static members (KIP-345); 9 says GROUP_ID_NOT_FOUND where earlier
ones say ILLEGAL_GENERATION (KIP-848).
Left out: versions 0 (kept in ZooKeeper) and 1; topic ids (10); member epochs of the
consumer protocol (KIP-848).
"""

from __future__ import annotations

from datetime import timedelta

from kio.schema.offset_commit.v9 import OffsetCommitResponse
from kio.schema.offset_commit.v9.response import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from broker.apis.group_common import answer_to, milliseconds
from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode, KafkaError
from broker.groups.commits import CommitRequest, Position
from broker.groups.offset_store import TopicPartition
from broker.request import Request
from broker.wire.codec import Entity
from planes.slices import preempt

_FIRST_WITH_MISSING_GROUP = 9
_BROKERS_RETENTION = timedelta(milliseconds=-1)

Outcomes = dict[TopicPartition, ErrorCode]


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """Commit what exists, and answer for all partitions."""
    outcomes: Outcomes = {}
    positions: dict[TopicPartition, Position] = {}
    for topic in body.topics:
        known = broker.metadata_cache.topic(topic.name)
        for partition in topic.partitions:
            target = TopicPartition(topic.name, partition.partition_index)
            if known is None or target.partition not in known.partitions:
                outcomes[target] = ErrorCode.unknown_topic_or_partition
                continue
            outcomes[target] = ErrorCode.none
            positions[target] = Position(
                partition.committed_offset,
                getattr(partition, "committed_leader_epoch", -1),
                partition.committed_metadata,
            )
        await preempt()
    if positions:
        outcomes |= await _commit(request, body, broker, positions)
    return _response(body, outcomes)


async def _commit(
    request: Request,
    body: Entity,
    broker: Broker,
    positions: dict[TopicPartition, Position],
) -> Outcomes:
    """Return what became of partitions that exist."""
    missing = ErrorCode.illegal_generation
    if request.api_version >= _FIRST_WITH_MISSING_GROUP:
        missing = ErrorCode.group_id_not_found
    retention = getattr(body, "retention_time", _BROKERS_RETENTION)
    commit = CommitRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        generation=body.generation_id_or_member_epoch,
        instance_id=getattr(body, "group_instance_id", None),
        retention_ms=milliseconds(retention),
        positions=positions,
        missing_group_error=missing,
    )
    try:
        return dict(await answer_to(broker.groups.offsets.commit(commit)))
    except KafkaError as refused:
        return dict.fromkeys(positions, refused.code)


def _response(body: Entity, outcomes: Outcomes) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetCommitResponseTopic(
                name=TopicName(topic.name),
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=i32(partition.partition_index),
                        error_code=outcomes[
                            TopicPartition(topic.name, partition.partition_index)
                        ],
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in body.topics
        ),
    )
