"""EndTxn (26): commit or abort a transaction.

Versions: 0-5.

Behaviour:
- The response is sent once the outcome is in ``__transaction_state``. The markers are
  written afterwards; until the last one, the next transaction of the id is refused with
  CONCURRENT_TRANSACTIONS.
- A repeated request with the same outcome succeeds; one with the other outcome is
  INVALID_TXN_STATE.
- Clients send v5 if ``transaction.version`` 2 is finalized. It increments the epoch,
  and returns the producer id and epoch of the next transaction. An abort also succeeds
  without a transaction.

Version notes: v2 may return PRODUCER_FENCED, v3 is flexible, v4 may return
TRANSACTION_ABORTABLE, v5 increments the epoch with every transaction (KIP-890).

Left out: nothing.
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
from broker.shards.parked_answer import Waiting
from broker.transactions.transaction import ProducerIdAndEpoch
from broker.transactions.transaction_coordinator import ProducerAnswer

_FENCED_SINCE: Final = 2
_EPOCH_RAISED_SINCE: Final = 5


async def handle(
    request: Request, body: EndTxnRequest, broker: Broker
) -> EndTxnResponse:
    """Decide the outcome."""
    version = request.api_version
    try:
        answer = await answer_to(await _end(version, body, broker))
    except KafkaError as refused:
        answer = ProducerAnswer(refused.code)
    error = answer.error
    if error is ErrorCode.producer_fenced and version < _FENCED_SINCE:
        error = ErrorCode.invalid_producer_epoch
    return EndTxnResponse(
        error_code=error,
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.epoch,
    )


async def _end(
    version: int, body: EndTxnRequest, broker: Broker
) -> Waiting[ProducerAnswer]:
    name, transactions = body.transactional_id, broker.transactions
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    if version < _EPOCH_RAISED_SINCE:
        return transactions.end(name, producer, body.committed)
    new_id = None
    if transactions.end_needs_producer_id(name, producer):
        new_id = await broker.producer_ids.next()
    return transactions.end_and_raise_epoch(name, producer, body.committed, new_id)


API: Final = Api(
    key=ApiKey.END_TXN,
    versions=(0, 5),
    request_class=GROUP,
    handle=handle,
    access=on_transaction(),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
