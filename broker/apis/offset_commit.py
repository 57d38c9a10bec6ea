"""OffsetCommit (8): store the offsets that a consumer has reached.

Versions: 2-10 served, 0-10 advertised (otherwise older librdkafka balances no
consumers).

Behaviour:
- The response is sent once the offsets are in ``__consumer_offsets``, replicated as
  with acks=-1.
- Only missing partitions fail with UNKNOWN_TOPIC_OR_PARTITION; all partitions of an
  unknown topic id fail with UNKNOWN_TOPIC_ID.
- A request can be preempted between topics, before the first commit.

Version notes:
- v2 to v4 have their own retention (removed by KIP-211); v6 adds leader epochs
  (KIP-320); v7 static members (KIP-345); v8 is flexible; v9 returns GROUP_ID_NOT_FOUND
  where earlier versions return ILLEGAL_GENERATION, and has the epochs of members of
  consumer groups (KIP-848); v10 identifies topics by id.

Left out: v0 (kept in ZooKeeper) and v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.apis.common.access import Check, on_group
from broker.apis.common.answer import to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to
from broker.apis.common.offset_rows import sorted_rows
from broker.authorization.acls import AclOperation, ResourceType
from broker.groups.committed_offsets import CommitRequest, Position
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from planes.slices import Pace, preempt

_MEMBER_EPOCHS_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 10
# Offsets written and answered per step.
_OFFSETS_PER_BATCH: Final = 128

Outcomes = dict[TopicPartition, ErrorCode]


async def handle(
    request: Request, body: OffsetCommitRequest, broker: Broker
) -> OffsetCommitResponse:
    """Commit the offsets of existing partitions, and return all outcomes."""
    by_id = request.api_version >= _TOPIC_IDS_SINCE
    rows = await sorted_rows(request, body.topics, broker, by_id=by_id)
    outcomes: Outcomes = rows.refused
    # In several batches of the log; Kafka writes one batch of any size.
    remaining = list(rows.positions.items())
    for start in range(0, len(remaining), _OFFSETS_PER_BATCH):
        some = dict(remaining[start : start + _OFFSETS_PER_BATCH])
        outcomes |= await _commit(request, body, broker, some)
        await preempt()
    return await _answer(body, rows.names, outcomes)


async def _commit(
    request: Request,
    body: OffsetCommitRequest,
    broker: Broker,
    positions: dict[TopicPartition, Position],
) -> Outcomes:
    """Return the outcomes of existing partitions."""
    supports_epochs = request.api_version >= _MEMBER_EPOCHS_SINCE
    missing = ErrorCode.illegal_generation
    if supports_epochs:
        missing = ErrorCode.group_id_not_found
    known = {name: broker.metadata_cache.topic(name) for name, _ in positions}
    commit = CommitRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        generation=body.generation_id_or_member_epoch,
        instance_id=body.group_instance_id,
        retention_ms=to_ms(body.retention_time),
        positions=positions,
        missing_group_error=missing,
        supports_member_epochs=supports_epochs,
        topic_ids={
            name: topic.topic_id
            for name, topic in known.items()
            if topic is not None and topic.topic_id is not None
        },
    )
    try:
        waiting = broker.groups.offsets.commit(commit)
        committed = await answer_to(waiting)
    except KafkaError as refused:
        return dict.fromkeys(positions, refused.code)
    return dict(committed)


async def _answer(
    body: OffsetCommitRequest, names: Sequence[str], outcomes: Outcomes
) -> OffsetCommitResponse:
    pace = Pace()
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=outcomes[
                            TopicPartition(name, partition.partition_index)
                        ],
                    )
                    async for partition in pace.over(topic.partitions)
                ],
            )
            async for topic, name in pace.over(zip(body.topics, names, strict=True))
        ],
    )


API: Final = Api(
    key=ApiKey.OFFSET_COMMIT,
    versions=(2, 10),
    advertised_from=0,
    request_class=GROUP,
    handle=handle,
    access=on_group(AclOperation.READ, Check(AclOperation.READ, ResourceType.TOPIC)),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_not_available,
        rows={"topics": ("topics",), "partitions": ("partitions",)},
    ),
)
