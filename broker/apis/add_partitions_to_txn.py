"""AddPartitionsToTxn (24): add partitions to a transaction, or verify them.

Versions: 0-5.

Behaviour:
- The first partition begins the transaction. The response is sent once
  ``__transaction_state`` has the partitions, with the same code for each of them.
- If one partition does not exist, none is added: its code is
  UNKNOWN_TOPIC_OR_PARTITION, and that of all others OPERATION_NOT_ATTEMPTED.
- Versions 4 and 5 are for brokers only, and contain several transactions. They verify
  that partitions belong to a transaction, or add partitions for a client of
  ``transaction.version`` 2 (KIP-890).

Version notes: v2 may return PRODUCER_FENCED, v3 is flexible, v4 is batched, v5 may
return TRANSACTION_ABORTABLE.

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.apis.common.access import Check, allowed, allowed_on_topic, in_handler
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to, by_topic
from broker.authorization.acls import AclOperation, ResourceType
from broker.node.broker import Broker
from broker.node.transaction_coordination import verify_here
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.header import RequestHeader
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from broker.transactions.transaction import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch
from planes.slices import Pace, in_steps, preempt

_BATCHED: Final = 4
_FENCED_SINCE: Final = 2

Outcomes = Mapping[TopicPartition, ErrorCode]


async def handle(
    request: Request, body: AddPartitionsToTxnRequest, broker: Broker
) -> AddPartitionsToTxnResponse:
    """Add, or verify, the partitions of each transaction."""
    version = request.api_version
    if version < _BATCHED:
        only = AddPartitionsToTxnTransaction(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=body.v3_and_below_producer_id,
            producer_epoch=body.v3_and_below_producer_epoch,
            topics=body.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=await _rows(only, request, broker)
        )
    results: list[AddPartitionsToTxnResult] = []
    for transaction in body.transactions:
        if results:
            await preempt()
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _rows(transaction, request, broker),
            )
        )
    return AddPartitionsToTxnResponse(
        error_code=ErrorCode.none, results_by_transaction=results
    )


async def _rows(
    transaction: AddPartitionsToTxnTransaction, request: Request, broker: Broker
) -> Sequence[AddPartitionsToTxnTopicResult]:
    outcomes = await _outcomes(transaction, request, broker)
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=rows)
        for name, rows in (await by_topic(outcomes.items(), _row)).items()
    ]


async def _outcomes(
    transaction: AddPartitionsToTxnTransaction, request: Request, broker: Broker
) -> Outcomes:
    version = request.api_version
    named = await _partitions(transaction.topics)
    # Later versions are checked by the broker's role.
    by_client = version < _BATCHED
    if by_client and not allowed(
        request,
        broker,
        AclOperation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        transaction.transactional_id,
    ):
        denied = ErrorCode.transactional_id_authorization_failed
        return dict.fromkeys(named, denied)
    missing: dict[TopicPartition, ErrorCode] = {}
    async for key in in_steps(named):
        if by_client and not allowed_on_topic(
            request, broker, AclOperation.WRITE, key.topic
        ):
            missing[key] = ErrorCode.topic_authorization_failed
        elif not broker.metadata_cache.has_partition(key):
            missing[key] = ErrorCode.unknown_topic_or_partition
    if missing:
        return dict.fromkeys(named, ErrorCode.operation_not_attempted) | missing
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return verify_here(
            broker.transactions, transaction.transactional_id, producer, named
        )
    try:
        waiting = broker.transactions.add_partitions(
            transaction.transactional_id,
            producer,
            frozenset(named),
            client_version=0 if by_client else EPOCH_PER_TRANSACTION,
        )
        error = await answer_to(waiting)
    except KafkaError as refused:
        error = refused.code
    if error is ErrorCode.producer_fenced and version < _FENCED_SINCE:
        error = ErrorCode.invalid_producer_epoch
    return dict.fromkeys(named, error)


async def _partitions(
    topics: Sequence[AddPartitionsToTxnTopic],
) -> tuple[TopicPartition, ...]:
    pace = Pace()
    named: dict[TopicPartition, None] = {}
    async for topic in pace.over(topics):
        async for partition in pace.over(topic.partitions):
            named[TopicPartition(topic.name, partition)] = None
    return tuple(named)


def _row(index: int, error: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(
        partition_index=index, partition_error_code=error
    )


def _of_a_broker(header: RequestHeader, frame: bytes) -> int:
    """Return a replica id, which claims a broker's role, for broker-only versions."""
    return 0 if header.api_version >= _BATCHED else -1


API: Final = Api(
    key=ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    request_class=GROUP,
    handle=handle,
    access=in_handler(
        Check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Check(AclOperation.WRITE, ResourceType.TOPIC),
    ),
    replica_id=_of_a_broker,
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_not_available,
        rows={
            "results_by_topic_v3_and_below": ("v3_and_below_topics",),
            "results_by_partition": ("partitions",),
        },
        rows_last=3,
    ),
)
