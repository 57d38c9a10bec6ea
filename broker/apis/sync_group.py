"""SyncGroup: a member asks for its part of the assignment; the leader brings all parts.

Versions: 0-5.
Behaviour: parked until the leader's assignment is in the log.
Version notes: 3 brings static members (KIP-345); from 5 on the protocol's type and name
are mandatory and checked (KIP-559).
Left out: nothing.
"""

from __future__ import annotations

from kio.schema.sync_group.v5 import SyncGroupResponse

from broker.apis.group_common import answer_to
from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode
from broker.groups.messages import SyncAnswer, SyncRequest
from broker.request import Request
from broker.wire.codec import Entity

_FIRST_WITH_PROTOCOL = 5


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """Sync, and wait for the assignment."""
    protocol_type = getattr(body, "protocol_type", None)
    protocol_name = getattr(body, "protocol_name", None)
    if request.api_version >= _FIRST_WITH_PROTOCOL and (
        protocol_type is None or protocol_name is None
    ):
        return _response(SyncAnswer(error=ErrorCode.inconsistent_group_protocol))
    waiting = broker.groups.sync(
        SyncRequest(
            group_id=body.group_id,
            member_id=body.member_id,
            generation=body.generation_id,
            instance_id=getattr(body, "group_instance_id", None),
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments={one.member_id: one.assignment for one in body.assignments},
        )
    )
    return _response(await answer_to(waiting))


def _response(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
