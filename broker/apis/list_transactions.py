"""ListTransactions (66): list the transactional ids coordinated here (KIP-664).

Versions: 0-2.

Behaviour:
- COORDINATOR_LOAD_IN_PROGRESS is returned while partitions of ``__transaction_state``
  are being read.
- Unknown states of a filter are returned, and match nothing.

Version notes: v1 filters by the duration of an open transaction (KIP-994), v2 by a
regular expression that matches the whole id (KIP-1152; INVALID_REGULAR_EXPRESSION).

Left out: expressions with nested repetitions of more than 1,000, which RE2 refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.apis.common.access import Check, allowed, in_handler
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation, ResourceType
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from broker.protocol.patterns import full_matcher
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from broker.transactions.transaction import Transaction
from broker.transactions.transaction_state import BY_LABEL
from planes.slices import in_steps


async def handle(
    request: Request, body: ListTransactionsRequest, broker: Broker
) -> ListTransactionsResponse:
    """List the ids that match the filters."""
    try:
        found = broker.transactions.all()
        passes = await _filter(body, broker.now_ms())
    except KafkaError as refused:
        return ListTransactionsResponse(error_code=refused.code, transaction_states=())
    unknown = [it async for it in in_steps(body.state_filters) if it not in BY_LABEL]
    return ListTransactionsResponse(
        error_code=ErrorCode.none,
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=each.name,
                producer_id=each.value.producer_id,
                transaction_state=each.state.label,
            )
            async for each in in_steps(found)
            if passes(each)
            and allowed(
                request,
                broker,
                AclOperation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                each.name,
                logs_denial=False,
            )
        ],
    )


async def _filter(
    body: ListTransactionsRequest, now_ms: int
) -> Callable[[Transaction], bool]:
    """Return the combined filter; raise INVALID_REGULAR_EXPRESSION."""
    labels = frozenset([it async for it in in_steps(body.state_filters)])
    producer_ids = frozenset([it async for it in in_steps(body.producer_id_filters)])
    open_ms = body.duration_filter
    pattern = body.transactional_id_pattern
    matches = full_matcher(pattern) if pattern else None

    def passes(each: Transaction) -> bool:
        value = each.value
        return (
            (not labels or value.state.label in labels)
            and (not producer_ids or value.producer_id in producer_ids)
            and (open_ms < 0 or now_ms - value.started_ms > open_ms)
            and (matches is None or matches(each.name))
        )

    return passes


API: Final = Api(
    key=ApiKey.LIST_TRANSACTIONS,
    versions=(0, 2),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(Check(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
