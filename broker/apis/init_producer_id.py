"""InitProducerId (22): give an idempotent producer an id and an epoch.

Versions: 0-5.

Behaviour: ids come from blocks of a thousand that are durable before the first of them
is given, so that none is ever given twice; a stopped broker loses the rest of a block.
A producer that asks to have its epoch raised (v3, KIP-360) is given a new id with epoch
0, as Kafka's broker does for producers without a transactional id.

A producer id without an epoch, or the reverse, is INVALID_REQUEST.

Version notes: v2 is flexible, v3 takes the producer's id and epoch, v4 may answer
PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890).

Left out: transactions. A transactional id gets INVALID_REQUEST, which ends a client's
attempts; COORDINATOR_NOT_AVAILABLE would have it try for ever.
"""

from __future__ import annotations

from typing import Final

from broker.apis.answer import Row, answer
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode, KafkaError
from broker.request import Request
from broker.wire.codec import Entity

_NONE: Final = -1


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Give out the next id."""
    try:
        if body.transactional_id is not None:
            raise KafkaError(ErrorCode.invalid_request, "no transactions here")
        if not _is_whole(body):
            raise KafkaError(ErrorCode.invalid_request, "half a producer id and epoch")
        producer_id = await broker.next_producer_id()
    except KafkaError as error:
        return answer(error_code=error.code, producer_id=-1, producer_epoch=-1)
    return answer(error_code=ErrorCode.none, producer_id=producer_id, producer_epoch=0)


def _is_whole(body: Entity) -> bool:
    """Tell whether the producer's present id and epoch are both given, or neither."""
    producer_id = getattr(body, "producer_id", _NONE)
    epoch = getattr(body, "producer_epoch", _NONE)
    return (producer_id == _NONE) == (epoch == _NONE)
