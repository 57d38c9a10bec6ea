"""FindCoordinator (10): find the coordinator of a group or a transactional id.

Versions: 0-6.

Behaviour: the coordinator is the leader of the group's partition of
``__consumer_offsets``, or of the id's partition of ``__transaction_state``. If the
topic does not exist, its creation is started, and the response is
COORDINATOR_NOT_AVAILABLE, as in Kafka; the client retries.

Version notes: v1 requests groups (0) or transactions (1), v3 is flexible, v4 has
several keys (KIP-699), v5 marks clients that support TRANSACTION_ABORTABLE (KIP-890),
v6 marks clients that support share coordinators (KIP-932).

Left out: share coordinators (INVALID_REQUEST).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.apis.common.access import Check, check, in_handler
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.topic_creation import auto_create
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request
from planes.slices import preempt

_GROUP: Final = 0
_TRANSACTION: Final = 1
_RESOURCES: Final = {
    _GROUP: ResourceType.GROUP,
    _TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}
_BATCHED: Final = 4


class _Coordinator(NamedTuple):
    """A broker, and its address for the requesting client."""

    node_id: int
    host: str
    port: int


async def handle(
    request: Request, body: FindCoordinatorRequest, broker: Broker
) -> FindCoordinatorResponse:
    """Find the coordinator of each key."""
    batched = request.api_version >= _BATCHED
    keys = body.coordinator_keys if batched else (body.key,)
    rows: list[Coordinator] = []
    for key in keys:
        if rows:
            await preempt()
        rows.append(await _coordinator(request, key, body.key_type, broker))
    if batched:
        return FindCoordinatorResponse(coordinators=rows)
    (only,) = rows
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _coordinator(
    request: Request, key: str, kind: int, broker: Broker
) -> Coordinator:
    try:
        if kind in _RESOURCES:
            check(request, broker, AclOperation.DESCRIBE, _RESOURCES[kind], key)
        found = await _find(request, key, kind, broker)
    except KafkaError as error:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=error.code,
            error_message=error.message,
        )
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=ErrorCode.none,
        error_message=None,
    )


async def _find(request: Request, key: str, kind: int, broker: Broker) -> _Coordinator:
    if kind == _TRANSACTION:
        name, index = TRANSACTION_STATE_TOPIC, broker.transactions.partition_for(key)
    elif kind == _GROUP:
        name, index = GROUP_METADATA_TOPIC, broker.groups.partition_for(key)
    else:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"coordinator type {kind}, only groups and transactions are here",
        )
    cache, listener = broker.metadata_cache, request.peer.listener
    topic = cache.topic(name)
    if topic is None:
        await _begin_topic(request, name, broker)
    state = None
    if topic is not None:
        state = topic.partitions.get(index)
    if state is None or not cache.is_reachable(state.leader, listener):
        raise KafkaError(ErrorCode.coordinator_not_available)
    host, port = cache.brokers[state.leader].endpoints[listener]
    return _Coordinator(state.leader, host, port)


async def _begin_topic(request: Request, name: str, broker: Broker) -> None:
    try:
        await auto_create(request, name, broker)
    except KafkaError as error:
        # The topic is being created by another request, or cannot be created yet.
        raise KafkaError(ErrorCode.coordinator_not_available, error.message) from error


API: Final = Api(
    key=ApiKey.FIND_COORDINATOR,
    versions=(0, 6),
    request_class=METADATA,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.GROUP),
        Check(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    ),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_not_available,
        rows={"coordinators": ("coordinator_keys",)},
    ),
)
