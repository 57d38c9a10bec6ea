"""DescribeTransactions (65): describe state and partitions of transactions (KIP-664).

Versions: 0.

Behaviour: an unknown id is TRANSACTIONAL_ID_NOT_FOUND. While markers are being written,
only partitions without a marker are listed.

Version notes: none.

Left out: nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from broker.apis.common.access import Check, allowed_on_topic, check, in_handler
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation, ResourceType
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def handle(
    request: Request, body: DescribeTransactionsRequest, broker: Broker
) -> DescribeTransactionsResponse:
    """Describe each id."""
    rows: list[TransactionState] = []
    for name in body.transactional_ids:
        if rows:
            await preempt()
        rows.append(await _described(request, name, broker))
    return DescribeTransactionsResponse(transaction_states=rows)


async def _described(request: Request, name: str, broker: Broker) -> TransactionState:
    kind = ResourceType.TRANSACTIONAL_ID
    try:
        check(request, broker, AclOperation.DESCRIBE, kind, name)
        value = broker.transactions.describe(name).value
    except KafkaError as refused:
        return TransactionState(
            error_code=refused.code,
            transactional_id=name,
            transaction_state="",
            transaction_timeout=timedelta(0),
            transaction_start_time=_EPOCH,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    topics: dict[str, list[int]] = {}
    async for topic, partition in in_steps(value.partitions):
        if allowed_on_topic(
            request, broker, AclOperation.DESCRIBE, topic, logs_denial=False
        ):
            topics.setdefault(topic, []).append(partition)
    started = None
    if value.started_ms >= 0:
        started = _EPOCH + timedelta(milliseconds=value.started_ms)
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=name,
        transaction_state=value.state.label,
        transaction_timeout=timedelta(milliseconds=value.timeout_ms),
        transaction_start_time=started,
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        topics=[
            TopicData(topic=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(topics.items())
        ],
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
        Check(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_not_available,
        rows={"transaction_states": ("transactional_ids",)},
    ),
)
