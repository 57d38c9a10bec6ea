"""OffsetDelete (47): delete committed offsets of topics that no member reads (KIP-496).

Versions: 0.

Behaviour:
- The response is sent once the tombstones are in ``__consumer_offsets``.
- Topics that a member subscribes to are refused with GROUP_SUBSCRIBED_TO_TOPIC; missing
  partitions fail individually.

Version notes: none.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import Check, allowed_on_topic, on_group
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to, by_topic
from broker.authorization.acls import AclOperation, ResourceType
from broker.groups.committed_offsets import OFFSETS_PER_STEP
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, in_steps, preempt


async def handle(
    request: Request, body: OffsetDeleteRequest, broker: Broker
) -> OffsetDeleteResponse:
    """Delete offsets; after an error of the group the response has no topics."""
    outcomes: dict[TopicPartition, ErrorCode] = {}
    pace = Pace()
    async for topic in pace.over(body.topics):
        known = broker.metadata_cache.topic(topic.name)
        may_read = allowed_on_topic(request, broker, AclOperation.READ, topic.name)
        async for partition in pace.over(topic.partitions):
            target = TopicPartition(topic.name, partition.partition_index)
            if not may_read:
                outcomes[target] = ErrorCode.topic_authorization_failed
                continue
            exists = known is not None and target.partition in known.partitions
            outcomes[target] = (
                ErrorCode.none if exists else ErrorCode.unknown_topic_or_partition
            )
    existing = [
        one
        async for one, error in in_steps(outcomes.items())
        if error is ErrorCode.none
    ]
    try:
        # One call even without partitions, which checks that the group exists.
        for start in range(0, len(existing) or 1, OFFSETS_PER_STEP):
            some = existing[start : start + OFFSETS_PER_STEP]
            waiting = broker.groups.offsets.delete(body.group_id, some)
            deleted = await answer_to(waiting)
            outcomes |= deleted
            await preempt()
    except KafkaError as refused:
        return OffsetDeleteResponse(error_code=refused.code, topics=[])
    topics = [
        OffsetDeleteResponseTopic(name=name, partitions=rows)
        for name, rows in (await by_topic(outcomes.items(), _row)).items()
    ]
    return OffsetDeleteResponse(error_code=ErrorCode.none, topics=topics)


def _row(index: int, error: ErrorCode) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(partition_index=index, error_code=error)


API: Final = Api(
    key=ApiKey.OFFSET_DELETE,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=on_group(AclOperation.DELETE, Check(AclOperation.READ, ResourceType.TOPIC)),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
