"""OffsetForLeaderEpoch (23): return the end offset of a leader epoch (KIP-101).

Versions: 2-4.

Behaviour: the response has the largest epoch up to the requested one, and its end
offset; (-1, -1) for an unknown epoch. Consumers use it after a change of leader, to
detect a truncation of records they have read (KIP-320). Only the leader serves this
API, in the client's leader epoch. A request can be preempted between partitions.

Version notes: v2 has the current leader epoch, v3 a replica id, v4 is flexible.

Left out: v0 and v1.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import (
    Check,
    allowed_on_cluster,
    allowed_on_topic,
    in_handler,
)
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation, ResourceType
from broker.log.epochs import UNKNOWN_END
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire import replica_ids
from broker.requests.classifier import METADATA
from broker.requests.request import Request
from planes.slices import preempt


async def handle(
    request: Request, body: OffsetForLeaderEpochRequest, broker: Broker
) -> OffsetForLeaderEpochResponse:
    """Return the end offset for each partition."""
    topics = []
    is_of_cluster = allowed_on_cluster(
        request, broker, AclOperation.CLUSTER_ACTION, logs_denial=False
    )
    for topic in body.topics:
        rows = []
        is_allowed = is_of_cluster or allowed_on_topic(
            request, broker, AclOperation.DESCRIBE, topic.topic
        )
        for wanted in topic.partitions:
            if is_allowed:
                rows.append(_row(topic.topic, wanted, broker))
            else:
                rows.append(_denied(wanted))
            await preempt()
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(topics=topics)


def _denied(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=ErrorCode.topic_authorization_failed,
        partition=wanted.partition,
        leader_epoch=UNKNOWN_END.epoch,
        end_offset=UNKNOWN_END.end_offset,
    )


def _row(
    topic: str, wanted: OffsetForLeaderPartition, broker: Broker
) -> EpochEndOffset:
    error, found = ErrorCode.none, UNKNOWN_END
    try:
        key = TopicPartition(topic, wanted.partition)
        partition = broker.replicas.leader(key, wanted.current_leader_epoch)
        found = partition.epoch_end_offset(wanted.leader_epoch)
    except KafkaError as refused:
        error = refused.code
    return EpochEndOffset(
        error_code=error,
        partition=wanted.partition,
        leader_epoch=found.epoch,
        end_offset=found.end_offset,
    )


API: Final = Api(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(2, 4),
    request_class=METADATA,
    replica_id=replica_ids.of_offset_for_leader_epoch,
    handle=handle,
    access=in_handler(
        Check(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
        Check(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    error_answer=ErrorAnswer(
        rows={"topics": ("topics",), "partitions": ("partitions",)}
    ),
)
