"""LeaveGroup: members go, or an operator sends static members away.

Versions: 0-5.
Behaviour: the others rebalance at once.
Version notes: before 3 one member, whose error is the answer's; from 3 on a batch, with
an error for each (KIP-345).
Left out: nothing; the client's ``reason`` (5, KIP-800) is read and not kept.
"""

from __future__ import annotations

from kio.schema.leave_group.v5 import LeaveGroupResponse
from kio.schema.leave_group.v5.response import MemberResponse

from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode, KafkaError
from broker.groups.messages import LeftMember, MemberIdentity
from broker.request import Request
from broker.wire.codec import Entity

_FIRST_WITH_BATCHES = 3


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """Remove the members."""
    batch = request.api_version >= _FIRST_WITH_BATCHES
    if batch:
        leavers = [
            MemberIdentity(m.member_id, m.group_instance_id) for m in body.members
        ]
    else:
        leavers = [MemberIdentity(body.member_id)]
    error = ErrorCode.none
    left: list[LeftMember] = []
    try:
        left = broker.groups.leave(body.group_id, leavers)
    except KafkaError as refused:
        error = refused.code
    if not batch and left:
        error = left[0].error
    return LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        members=tuple(
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                error_code=one.error,
            )
            for one in left
        ),
    )
