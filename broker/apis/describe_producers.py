"""DescribeProducers (61): describe producers of partitions and open transactions.

Versions: 0-0.

Behaviour: the response has the producers in the leader's log (KIP-664). Each has its
epoch, last sequence number, last time stamp, the coordinator epoch of the last marker,
and the first offset of its open transaction; missing values are -1. Errors:
NOT_LEADER_OR_FOLLOWER on another replica; UNKNOWN_TOPIC_OR_PARTITION;
INVALID_TOPIC_EXCEPTION for an invalid name. A request can be preempted after every 64
producers.

Version notes: v0 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import Check, check_topic, in_handler
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.cluster_topics import check_name
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, preempt


async def handle(
    request: Request, body: DescribeProducersRequest, broker: Broker
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    topics: list[TopicResponse] = []
    for topic in body.topics:
        rows = []
        for index in topic.partition_indexes:
            key = TopicPartition(topic.name, index)
            rows.append(await _partition(request, key, broker))
            await preempt()
        topics.append(TopicResponse(name=topic.name, partitions=rows))
    return DescribeProducersResponse(topics=topics)


async def _partition(
    request: Request, key: TopicPartition, broker: Broker
) -> PartitionResponse:
    try:
        check_topic(request, broker, AclOperation.READ, key.topic)
        check_name(key.topic)
        log = broker.replicas.leader(key).log
    except KafkaError as error:
        return PartitionResponse(
            partition_index=key.partition,
            error_code=error.code,
            error_message=error.message,
            active_producers=(),
        )
    pace = Pace()
    return PartitionResponse(
        partition_index=key.partition,
        error_code=ErrorCode.none,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.batches[-1].last_sequence if state.batches else -1,
                last_timestamp=state.last_ms,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.transaction_from,
            )
            async for producer_id, state in pace.over(log.producers.described())
        ],
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_PRODUCERS,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(Check(AclOperation.READ, ResourceType.TOPIC)),
    error_answer=ErrorAnswer(
        rows={"topics": ("topics",), "partitions": ("partition_indexes",)}
    ),
)
