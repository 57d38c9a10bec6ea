"""OffsetDelete (47): committed offsets of topics that nobody reads go (KIP-496).

Versions: 0.

Behaviour:
- Answered when the tombstones are in ``__consumer_offsets``.
- Topics that a member subscribes to are refused with GROUP_SUBSCRIBED_TO_TOPIC;
  partitions that do not exist fail alone.

Version notes: none.

Left out: nothing.
"""

from __future__ import annotations

from broker.apis.answer import Row, answer
from broker.apis.group_common import answer_to, by_topic
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode, KafkaError
from broker.groups.offset_store import TopicPartition
from broker.request import Request
from broker.wire.codec import Entity


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Delete what exists; an error of the group leaves no topics in the answer."""
    outcomes: dict[TopicPartition, ErrorCode] = {}
    for topic in body.topics:
        known = broker.metadata_cache.topic(topic.name)
        for partition in topic.partitions:
            target = TopicPartition(topic.name, partition.partition_index)
            exists = known is not None and target.partition in known.partitions
            outcomes[target] = (
                ErrorCode.none if exists else ErrorCode.unknown_topic_or_partition
            )
    existing = [one for one, error in outcomes.items() if error is ErrorCode.none]
    try:
        waiting = broker.groups.offsets.delete(body.group_id, existing)
        deleted = await answer_to(waiting)
    except KafkaError as refused:
        return answer(error_code=refused.code, topics=[])
    outcomes |= deleted
    return answer(
        error_code=ErrorCode.none,
        topics=[
            Row(
                name=topic,
                partitions=[
                    Row(partition_index=partition, error_code=error)
                    for partition, error in partitions
                ],
            )
            for topic, partitions in by_topic(outcomes.items())
        ],
    )
