"""EndTxn (26): commit or abort a transaction.

Versions: 0-4.

Behaviour:
- Answered when the outcome is in ``__transaction_state``. The markers are written
  afterwards; until the last one is, the next transaction of the id is refused with
  CONCURRENT_TRANSACTIONS.
- A repeated request with the same outcome succeeds; one with the other outcome is
  INVALID_TXN_STATE.

Version notes: v2 may answer PRODUCER_FENCED, v3 is flexible, v4 may answer
TRANSACTION_ABORTABLE (KIP-890).

Left out: v5, which raises the epoch with every transaction (``transaction.version`` 2).
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_transaction
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from broker.transactions.transaction import ProducerIdAndEpoch

_FENCED_SINCE: Final = 2


async def handle(
    request: Request, body: EndTxnRequest, broker: Broker
) -> EndTxnResponse:
    """Decide the outcome."""
    try:
        waiting = broker.transactions.end(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            body.committed,
        )
        error = await answer_to(waiting)
    except KafkaError as refused:
        error = refused.code
    if error is ErrorCode.producer_fenced and request.api_version < _FENCED_SINCE:
        error = ErrorCode.invalid_producer_epoch
    return EndTxnResponse(error_code=error)


API: Final = Api(
    key=ApiKey.END_TXN,
    versions=(0, 4),
    request_class=GROUP,
    handle=handle,
    access=on_transaction(),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
