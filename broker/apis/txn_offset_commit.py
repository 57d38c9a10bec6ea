"""TxnOffsetCommit (28): commit offsets of a group with a transaction.

Versions: 0-6.

Behaviour:
- The transaction is verified with its coordinator before it begins in the group's
  partition of ``__consumer_offsets``; v5 adds this partition to it (KIP-890).
- The response is sent once the offsets are in the log, replicated as with acks=-1. The
  offsets are visible after the commit marker; until then OffsetFetch returns
  UNSTABLE_OFFSET_COMMIT to requests for stable offsets.
- A request with a consumer's generation is fenced by it: ILLEGAL_GENERATION,
  UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID. An old producer epoch is
  INVALID_PRODUCER_EPOCH.
- Only missing partitions fail with UNKNOWN_TOPIC_OR_PARTITION; all partitions of an
  unknown topic id fail with UNKNOWN_TOPIC_ID.
- A request can be preempted between topics, before the first commit.

Version notes: v2 has leader epochs, and returns COORDINATOR_LOAD_IN_PROGRESS where
earlier versions return COORDINATOR_NOT_AVAILABLE; v3 is flexible and has the member
(KIP-447); v4 may return TRANSACTION_ABORTABLE; v5, for ``transaction.version`` 2, does
not need AddOffsetsToTxn before it (KIP-890); v6 identifies topics by id, and may return
GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH where earlier versions return
ILLEGAL_GENERATION (KIP-1319).

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.apis.common.access import Check, on_transaction
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to
from broker.apis.common.offset_rows import sorted_rows
from broker.apis.common.verification import Sending, TransactionSupport, verified
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC
from broker.groups.committed_offsets import Position, TransactionalCommit
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from broker.shards.effects import InTransaction
from planes.slices import Pace, preempt

_LOADING_SINCE: Final = 2
_TOPIC_IDS_SINCE: Final = 6
_FENCED_SINCE: Final = 6
_FENCED: Final = (ErrorCode.group_id_not_found, ErrorCode.stale_member_epoch)
_SUPPORT: Final = dict.fromkeys(range(4), TransactionSupport.NONE) | {
    4: TransactionSupport.ABORTABLE_ERROR,
    5: TransactionSupport.IMPLICIT_ADD,
    6: TransactionSupport.IMPLICIT_ADD,
}
# A batch of a coordinator has no sequence numbers.
_NO_SEQUENCE: Final = 0
# Offsets written and answered per step.
_OFFSETS_PER_BATCH: Final = 128

Outcomes = dict[TopicPartition, ErrorCode]


async def handle(
    request: Request, body: TxnOffsetCommitRequest, broker: Broker
) -> TxnOffsetCommitResponse:
    """Commit the offsets of existing partitions, and return all outcomes."""
    by_id = request.api_version >= _TOPIC_IDS_SINCE
    rows = await sorted_rows(request, body.topics, broker, by_id=by_id)
    outcomes: Outcomes = rows.refused
    remaining = list(rows.positions.items())
    for start in range(0, len(remaining), _OFFSETS_PER_BATCH):
        some = dict(remaining[start : start + _OFFSETS_PER_BATCH])
        try:
            outcomes |= await _commit(request, body, broker, some)
        except KafkaError as refused:
            code = _for_version(refused.code, request.api_version)
            outcomes |= dict.fromkeys(some, code)
        await preempt()
    return await _answer(body, rows.names, outcomes)


async def _commit(
    request: Request,
    body: TxnOffsetCommitRequest,
    broker: Broker,
    positions: dict[TopicPartition, Position],
) -> Outcomes:
    """Return the outcomes of existing partitions; raise an error of all of them."""
    if not body.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    index = broker.groups.partition_for(body.group_id)
    key = TopicPartition(GROUP_METADATA_TOPIC, index)
    sending = Sending(body.producer_id, body.producer_epoch, _NO_SEQUENCE)
    found = await verified(
        body.transactional_id,
        {key: sending},
        broker,
        support=_SUPPORT[request.api_version],
    )
    guard = found.get(key)
    if isinstance(guard, ErrorCode):
        raise KafkaError(guard)
    commit = TransactionalCommit(
        group_id=body.group_id,
        member_id=body.member_id,
        generation=body.generation_id,
        instance_id=body.group_instance_id,
        positions=positions,
        transaction=InTransaction(body.producer_id, body.producer_epoch, guard),
    )
    waiting = broker.groups.offsets.commit_in_transaction(commit)
    committed = await answer_to(waiting)
    return dict(committed)


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code in the form that clients of a version expect."""
    if code is ErrorCode.network_exception:
        code = ErrorCode.coordinator_load_in_progress
    if code is ErrorCode.coordinator_load_in_progress and version < _LOADING_SINCE:
        return ErrorCode.coordinator_not_available
    if code in _FENCED and version < _FENCED_SINCE:
        return ErrorCode.illegal_generation
    return code


async def _answer(
    body: TxnOffsetCommitRequest, names: Sequence[str], outcomes: Outcomes
) -> TxnOffsetCommitResponse:
    pace = Pace()
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
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
    key=ApiKey.TXN_OFFSET_COMMIT,
    versions=(0, 6),
    request_class=GROUP,
    handle=handle,
    access=on_transaction(Check(AclOperation.READ, ResourceType.TOPIC), and_group=True),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_not_available,
        rows={"topics": ("topics",), "partitions": ("partitions",)},
    ),
)
