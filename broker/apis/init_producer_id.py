"""InitProducerId (22): give an idempotent producer an id and an epoch.

Versions: 0-5.

Behaviour: ids come from blocks of a thousand that are durable before the first of them
is given, so that none is ever given twice; a stopped broker loses the rest of a block.
A producer that asks to have its epoch raised (v3, KIP-360) is given a new id with epoch
0, as Kafka's broker does for producers without a transactional id.

A producer id without an epoch, or the reverse, is INVALID_REQUEST, and so is an empty
transactional id.

Version notes: v2 is flexible, v3 takes the producer's id and epoch, v4 may answer
PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890).

Left out: transactions. A transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
which ends the attempts of every client.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.transactions import transactions_not_served
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request

_NONE: Final = -1


async def handle(
    request: Request, body: InitProducerIdRequest, broker: Broker
) -> InitProducerIdResponse:
    """Give out the next id."""
    try:
        if not _is_whole(body):
            raise KafkaError(ErrorCode.invalid_request, "half a producer id and epoch")
        if body.transactional_id == "":
            raise KafkaError(ErrorCode.invalid_request, "an empty transactional id")
        if body.transactional_id is not None:
            raise transactions_not_served()
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return InitProducerIdResponse(
            error_code=error.code, producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(
        error_code=ErrorCode.none, producer_id=producer_id, producer_epoch=0
    )


def _is_whole(body: InitProducerIdRequest) -> bool:
    """Return whether the producer's present id and epoch are both given, or neither."""
    return (body.producer_id == _NONE) == (body.producer_epoch == _NONE)


API: Final = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    versions=(0, 5),
    request_class=METADATA,
    handle=handle,
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_load_in_progress),
)
