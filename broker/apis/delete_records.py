"""DeleteRecords (21): delete the records of partitions before an offset (KIP-107).

Versions: 0-2.

Behaviour:
- Offset -1 stands for the high watermark; larger offsets are OFFSET_OUT_OF_RANGE. The
  response has the low watermark, once every replica has reached the offset or
  ``timeout_ms`` has passed.
- Log start offsets are durable before the response, so deleted records do not return.
  (Kafka writes them once a minute, so a crash may restore records.)
- POLICY_VIOLATION is returned for a topic with only compaction, and
  INVALID_TOPIC_EXCEPTION for an internal topic, as in Kafka.
- A request can be preempted between partitions.

Version notes: v2 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import Check, check_topic, in_handler
from broker.apis.common.answer import to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.parked_handlers import wait_in
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.cluster_topics import INTERNAL_TOPICS
from broker.cluster.delayed.delayed_delete_records import DelayedDeleteRecords, Outcome
from broker.log.trimming import delete_records_before
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, in_steps, preempt

_HIGH_WATERMARK: Final = -1
_NS_PER_MS: Final = 1_000_000


async def handle(
    request: Request, body: DeleteRecordsRequest, broker: Broker
) -> DeleteRecordsResponse:
    """Delete on this leader, then wait for the followers."""
    pace = Pace()
    # The last offset of a duplicate partition counts, as in Kafka's map.
    offsets: dict[TopicPartition, int] = {}
    async for topic in pace.over(body.topics):
        async for each in pace.over(topic.partitions):
            offsets[TopicPartition(topic.name, each.partition_index)] = each.offset
    wanted: dict[TopicPartition, int] = {}
    outcomes: dict[TopicPartition, Outcome] = {}
    for key, offset in offsets.items():
        try:
            check_topic(request, broker, AclOperation.DELETE, key.topic)
            wanted[key] = _delete(key, offset, broker)
        except KafkaError as error:
            outcomes[key] = Outcome(error.code)
        await preempt()
    await _keep(wanted, outcomes, broker)
    delayed = await _waited(request, wanted, to_ms(body.timeout), broker)
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    async for key in in_steps(offsets):
        outcome = outcomes.get(key) or delayed.outcome_of(key)
        topics.setdefault(key.topic, []).append(_row(key.partition, outcome))
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=rows)
            for name, rows in topics.items()
        ]
    )


def _row(index: int, outcome: Outcome) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index,
        low_watermark=outcome.low_watermark,
        error_code=outcome.error,
    )


def _delete(key: TopicPartition, offset: int, broker: Broker) -> int:
    """Advance a partition's log start; return the offset for all replicas to reach."""
    if key.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.invalid_topic_exception, "an internal topic")
    partition = broker.replicas.leader(key)
    config = partition.log.config
    if config.compacts and not config.deletes:
        raise KafkaError(ErrorCode.policy_violation, "cleanup.policy is compact")
    if offset == _HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"offset {offset}, the high watermark is {partition.high_watermark}",
        )
    delete_records_before(partition.log, offset)
    return offset


async def _keep(
    wanted: dict[TopicPartition, int],
    outcomes: dict[TopicPartition, Outcome],
    broker: Broker,
) -> None:
    """Write the log start offsets to disk; failures become outcomes."""
    homes = {
        key: broker.logs.logs[key].home
        async for key in in_steps(wanted)
        if key in broker.logs.logs
    }
    for home, call in broker.logs.keeping_starts(homes).items():
        try:
            await broker.blocking(call)
        except OSError as error:
            broker.log_dirs.failed(home, error)
            for key in [key for key, its in homes.items() if its == home]:
                del wanted[key]
                outcomes[key] = Outcome(ErrorCode.kafka_storage_error)


async def _waited(
    request: Request, wanted: dict[TopicPartition, int], wait_ms: int, broker: Broker
) -> DelayedDeleteRecords:
    delayed = DelayedDeleteRecords(broker.replicas.partitions, wanted)
    if wanted:
        deadline_ns = broker.now_ns() + max(wait_ms, 0) * _NS_PER_MS
        purgatory = broker.replicas.delete_records_purgatory
        await wait_in(purgatory, request, delayed, wanted, deadline_ns)
    return delayed


API: Final = Api(
    key=ApiKey.DELETE_RECORDS,
    versions=(0, 2),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DELETE, ResourceType.TOPIC),
    ),
    error_answer=ErrorAnswer(
        rows={"topics": ("topics",), "partitions": ("partitions",)}
    ),
)
