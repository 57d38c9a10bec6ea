"""DescribeTopicPartitions (75): describe topics and partitions in pages (KIP-966).

Versions: 0.

Behaviour: topics are listed by name, from the cursor on, up to
``response_partition_limit`` partitions (at most 2,000); the next cursor is the start of
the next page. An empty list of topics means all; a cursor at a topic outside the list
is INVALID_REQUEST. A request can be preempted between topics.

Version notes: none.

Left out: eligible leader replicas. There are none, and the lists are empty: the field
may be null, but Kafka's own client cannot read that.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from broker.apis.common.access import Check, allowed_on_topic, in_handler, operations
from broker.apis.common.answer import NO_ID, NOT_ASKED
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.collecting import distinct, in_order
from broker.apis.common.partition_row import partition_row
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.cluster_topics import INTERNAL_TOPICS, check_name
from broker.cluster.metadata_cache import MetadataView, TopicMetadata
from broker.config import MAX_REQUEST_PARTITION_SIZE_LIMIT
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request
from planes.slices import in_steps, preempt

# Partition rows equal those of Metadata's newest version.
_METADATA_VERSION: Final = 12


async def handle(
    request: Request, body: DescribeTopicPartitionsRequest, broker: Broker
) -> DescribeTopicPartitionsResponse:
    """Describe one page."""
    cache = broker.metadata_cache.view()
    names = await distinct(topic.name for topic in body.topics)
    if not names:
        names = await distinct(topic.name for topic in cache.topics())
    cursor = body.cursor
    topic_name, index = "", 0
    if cursor is not None:
        topic_name, index = cursor.topic_name, cursor.partition_index
    if index < 0 or (cursor is not None and body.topics and topic_name not in names):
        return DescribeTopicPartitionsResponse(
            topics=await _refused(body), next_cursor=None
        )
    bound = broker.config[MAX_REQUEST_PARTITION_SIZE_LIMIT]
    left = min(max(body.response_partition_limit, 1), bound)
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor = None
    behind = [name async for name in in_steps(names) if name >= topic_name]
    async for name in in_steps(await in_order(behind)):
        if not allowed_on_topic(
            request,
            broker,
            AclOperation.DESCRIBE,
            name,
            logs_denial=bool(body.topics),
        ):
            if body.topics:
                rows.append(_denied(name))
            continue
        topic = cache.topic(name)
        first = index if name == topic_name else 0
        if not left:
            next_cursor = ResponseCursor(topic_name=name, partition_index=first)
            break
        if topic is None:
            rows.append(_unknown(request, name, broker))
            continue
        indexes = sorted(topic.partitions)
        del indexes[: bisect_left(indexes, first)]
        rows.append(await _described(request, topic, indexes[:left], cache, broker))
        if len(indexes) > left:
            next_cursor = ResponseCursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
        await preempt()
    return DescribeTopicPartitionsResponse(topics=rows, next_cursor=next_cursor)


async def _refused(
    body: DescribeTopicPartitionsRequest,
) -> list[DescribeTopicPartitionsResponseTopic]:
    """Refuse each topic, because the cursor is invalid."""
    rows = []
    async for topic in in_steps(body.topics):
        rows.append(_row(topic.name, ErrorCode.invalid_request, None, [], NOT_ASKED))
    return rows


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Return the row of a denied topic, which also hides whether it is internal."""
    row = _row(name, ErrorCode.topic_authorization_failed, None, [], NOT_ASKED)
    row.is_internal = False
    return row


def _unknown(
    request: Request, name: str, broker: Broker
) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.unknown_topic_or_partition
    try:
        check_name(name)
    except KafkaError as refused:
        error = refused.code
    found = operations(request, broker, ResourceType.TOPIC, name)
    return _row(name, error, None, [], found)


async def _described(
    request: Request,
    topic: TopicMetadata,
    indexes: list[int],
    cache: MetadataView,
    broker: Broker,
) -> DescribeTopicPartitionsResponseTopic:
    listener = request.peer.listener
    partitions = []
    async for index in in_steps(indexes):
        found = partition_row(
            topic.partitions[index], listener, _METADATA_VERSION, cache
        )
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=found.error_code,
                partition_index=index,
                leader_id=found.leader_id,
                leader_epoch=found.leader_epoch,
                replica_nodes=found.replica_nodes,
                isr_nodes=found.isr_nodes,
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=found.offline_replicas,
            )
        )
    may = operations(request, broker, ResourceType.TOPIC, topic.name)
    return _row(topic.name, ErrorCode.none, topic, partitions, may)


def _row(
    name: str,
    error: ErrorCode,
    topic: TopicMetadata | None,
    partitions: list[DescribeTopicPartitionsResponsePartition],
    found_operations: int,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        topic_id=NO_ID if topic is None else topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=found_operations,
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    request_class=METADATA,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    error_answer=ErrorAnswer(rows={"topics": ("topics",)}),
)
