"""DeleteRecords (21): let partitions begin at a later offset (KIP-107).

Versions: 0-2.

Behaviour:
- Offset -1 stands for the high watermark; OFFSET_OUT_OF_RANGE beyond it. The answer is
  the low watermark, once every replica has reached the offset or ``timeout_ms`` passed.
- Before the answer, the starts of the logs are on disk: what was deleted stays deleted.
  (Kafka writes them once a minute, and a crash brings records back.)
- POLICY_VIOLATION for a topic that is compacted and not deleted from, and
  INVALID_TOPIC_EXCEPTION for an internal one, as in Kafka.
- A request can be preempted between two partitions.

Version notes: v2 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.answer import Row, answer, to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.cluster.delayed.delete_records import DelayedDeleteRecords, Outcome
from broker.cluster.topics import INTERNAL_TOPICS
from broker.log.trimming import delete_records_before
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import Entity
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import parked, preempt

_HIGH_WATERMARK: Final = -1
_NS_PER_MS: Final = 1_000_000


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Delete here, then wait for the followers."""
    wanted: dict[TopicPartition, int] = {}
    outcomes: dict[TopicPartition, Outcome] = {}
    for topic in body.topics:
        for each in topic.partitions:
            key = TopicPartition(topic.name, each.partition_index)
            try:
                wanted[key] = _delete(key, each.offset, broker)
            except KafkaError as error:
                outcomes[key] = Outcome(error.code)
            await preempt()
    await _keep(wanted, outcomes, broker)
    outcomes |= await _wait(wanted, to_ms(body.timeout), broker)
    return answer(
        topics=[
            Row(
                name=topic.name,
                partitions=[
                    _row(
                        each.partition_index,
                        outcomes[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _row(index: int, outcome: Outcome) -> Row:
    return Row(
        partition_index=index,
        low_watermark=outcome.low_watermark,
        error_code=outcome.error,
    )


def _delete(key: TopicPartition, offset: int, broker: Broker) -> int:
    """Move one partition's start; return the offset that all replicas must reach."""
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
    """Write down where the logs start now; what cannot be is an outcome."""
    homes = {
        key: broker.logs.logs[key].home for key in wanted if key in broker.logs.logs
    }
    for home, call in broker.logs.keeping_starts(homes).items():
        try:
            await broker.blocking(call)
        except OSError as error:
            broker.log_dirs.failed(home, error)
            for key in [key for key, its in homes.items() if its == home]:
                del wanted[key]
                outcomes[key] = Outcome(ErrorCode.kafka_storage_error)


async def _wait(
    wanted: dict[TopicPartition, int], wait_ms: int, broker: Broker
) -> dict[TopicPartition, Outcome]:
    delayed = DelayedDeleteRecords(broker.replicas.partitions, wanted)
    if not delayed.try_complete():
        deadline_ns = broker.now_ns() + max(wait_ms, 0) * _NS_PER_MS
        purgatory = broker.replicas.delete_records_purgatory
        keys = tuple(delayed.waiting)
        await parked(
            lambda wake: purgatory.watch(delayed, keys, deadline_ns, wake) is not None
        )
    return delayed.outcomes


API: Final = Api(
    key=ApiKey.DELETE_RECORDS,
    versions=(0, 2),
    request_class=ADMIN,
    handle=handle,
    error_answer=ErrorAnswer(
        rows={"topics": ("topics",), "partitions": ("partitions",)}
    ),
)
