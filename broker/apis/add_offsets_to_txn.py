"""AddOffsetsToTxn (25): add the offsets of a group to a transaction.

Versions: 0-4.

Behaviour: the group's partition of ``__consumer_offsets`` becomes part of the
transaction; see AddPartitionsToTxn. TxnOffsetCommit then sends the offsets.

Version notes: v2 may return PRODUCER_FENCED, v3 is flexible, v4 may return
TRANSACTION_ABORTABLE (KIP-890).

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_transaction
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to
from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from broker.transactions.transaction import ProducerIdAndEpoch

_FENCED_SINCE: Final = 2


async def handle(
    request: Request, body: AddOffsetsToTxnRequest, broker: Broker
) -> AddOffsetsToTxnResponse:
    """Add the partition of the group."""
    partition = broker.groups.partition_for(body.group_id)
    try:
        waiting = broker.transactions.add_partitions(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            frozenset({TopicPartition(GROUP_METADATA_TOPIC, partition)}),
        )
        error = await answer_to(waiting)
    except KafkaError as refused:
        error = refused.code
    if error is ErrorCode.producer_fenced and request.api_version < _FENCED_SINCE:
        error = ErrorCode.invalid_producer_epoch
    return AddOffsetsToTxnResponse(error_code=error)


API: Final = Api(
    key=ApiKey.ADD_OFFSETS_TO_TXN,
    versions=(0, 4),
    request_class=GROUP,
    handle=handle,
    access=on_transaction(and_group=True),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
