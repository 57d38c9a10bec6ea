"""DeleteGroups: groups without members are removed with their offsets (KIP-229).

Versions: 0-2.
Behaviour: answered when the tombstones are in ``__consumer_offsets``.
Version notes: none.
Left out: nothing.
"""

from __future__ import annotations

from kio.schema.delete_groups.v2 import DeleteGroupsResponse
from kio.schema.delete_groups.v2.response import DeletableGroupResult
from kio.schema.types import GroupId

from broker.apis.group_common import answer_to
from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode, KafkaError
from broker.request import Request
from broker.wire.codec import Entity
from planes.slices import preempt


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """Delete each group once, in the order named."""
    results = []
    for group_id in dict.fromkeys(body.groups_names):
        error = await _delete(group_id, broker)
        results.append(
            DeletableGroupResult(group_id=GroupId(group_id), error_code=error)
        )
        await preempt()
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _delete(group_id: str, broker: Broker) -> ErrorCode:
    try:
        return await answer_to(broker.groups.offsets.delete_group(group_id))
    except KafkaError as refused:
        return refused.code
