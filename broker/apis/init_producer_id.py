"""InitProducerId (22): assign a producer id and an epoch.

Versions: 0-5.

Behaviour: ids are assigned from blocks of a thousand. A block is durable before its
first id is used, so that no id is assigned twice; a stop discards the rest of a block.
A request to increment an epoch (v3, KIP-360) returns a new id with epoch 0, as in Kafka
for producers without a transactional id.

With a transactional id, its coordinator increments the epoch, which fences all earlier
producers of the id. An open transaction is aborted first: the response is
CONCURRENT_TRANSACTIONS until its markers are written.

A producer id without an epoch, or the reverse, is INVALID_REQUEST, and so is an empty
transactional id.

Version notes: v2 is flexible, v3 has the producer's id and epoch, v4 may return
PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890).

Left out: v6, which keeps prepared transactions (KIP-939) and is unstable in Kafka 4.4,
which does not advertise it.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import (
    Check,
    allowed,
    allowed_on_cluster,
    check,
    denied,
    in_handler,
)
from broker.apis.common.answer import to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to
from broker.authorization.acls import AclOperation, ResourceType
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request
from broker.transactions.transaction import ProducerIdAndEpoch
from broker.transactions.transaction_coordinator import InitRequest

_NONE: Final = -1
_FENCED_SINCE: Final = 4


async def handle(
    request: Request, body: InitProducerIdRequest, broker: Broker
) -> InitProducerIdResponse:
    """Assign the next id, or the next epoch of a transactional id."""
    try:
        if not _is_whole(body):
            raise KafkaError(ErrorCode.invalid_request, "half a producer id and epoch")
        if body.transactional_id == "":
            raise KafkaError(ErrorCode.invalid_request, "an empty transactional id")
        if body.transactional_id is None:
            if not _may_be_idempotent(request, broker):
                raise denied(ResourceType.CLUSTER)
            given = ProducerIdAndEpoch(await broker.producer_ids.next(), 0)
        else:
            kind = ResourceType.TRANSACTIONAL_ID
            check(request, broker, AclOperation.WRITE, kind, body.transactional_id)
            given = await _init(body.transactional_id, body, broker)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.producer_fenced and request.api_version < _FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
        return InitProducerIdResponse(
            error_code=code, producer_id=_NONE, producer_epoch=_NONE
        )
    return InitProducerIdResponse(
        error_code=ErrorCode.none,
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
    )


async def _init(
    transactional_id: str, body: InitProducerIdRequest, broker: Broker
) -> ProducerIdAndEpoch:
    known = None
    if body.producer_id != _NONE:
        known = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    init = InitRequest(
        transactional_id=transactional_id,
        timeout_ms=to_ms(body.transaction_timeout),
        known=known,
    )
    new_id = None
    if broker.transactions.needs_producer_id(init):
        new_id = await broker.producer_ids.next()
    answer = await answer_to(broker.transactions.init_producer_id(init, new_id))
    if answer.error is not ErrorCode.none:
        raise KafkaError(answer.error)
    return answer.producer


def _may_be_idempotent(request: Request, broker: Broker) -> bool:
    """Return whether IDEMPOTENT_WRITE, or WRITE on any topic, is allowed."""
    return allowed_on_cluster(
        request, broker, AclOperation.IDEMPOTENT_WRITE, logs_denial=False
    ) or allowed(request, broker, AclOperation.WRITE, ResourceType.TOPIC, None)


def _is_whole(body: InitProducerIdRequest) -> bool:
    """Return whether the producer's current id and epoch are both set, or neither."""
    return (body.producer_id == _NONE) == (body.producer_epoch == _NONE)


API: Final = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    versions=(0, 5),
    request_class=METADATA,
    handle=handle,
    access=in_handler(
        Check(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
        Check(AclOperation.WRITE, ResourceType.TOPIC),
        Check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    ),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_load_in_progress),
)
