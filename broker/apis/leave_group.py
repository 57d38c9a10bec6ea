"""LeaveGroup (13): members leave, or an operator removes static members.

Versions: 0-5.

Behaviour:
- The remaining members rebalance at once.

Version notes:
- Before v3 one member leaves, with a top-level error; from v3 on a request has several
  members, with an error for each (KIP-345); v4 is flexible.

Left out: nothing; the client's ``reason`` (v5, KIP-800) is read and not kept.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_group
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation
from broker.groups.state.group_messages import LeftMember, MemberIdentity
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from planes.slices import in_steps, preempt

_BATCHES_SINCE: Final = 3
_LEAVERS_PER_STEP: Final = 64


async def handle(
    request: Request, body: LeaveGroupRequest, broker: Broker
) -> LeaveGroupResponse:
    """Remove the members."""
    batch = request.api_version >= _BATCHES_SINCE
    if batch:
        leavers = [
            MemberIdentity(leaver.member_id, leaver.group_instance_id)
            async for leaver in in_steps(body.members)
        ]
    else:
        leavers = [MemberIdentity(body.member_id)]
    error = ErrorCode.none
    left: list[LeftMember] = []
    try:
        for start in range(0, len(leavers) or 1, _LEAVERS_PER_STEP):
            some = leavers[start : start + _LEAVERS_PER_STEP]
            left += broker.groups.leave(body.group_id, some)
            await preempt()
    except KafkaError as refused:
        error = refused.code
    if not batch and left:
        error = left[0].error
    return LeaveGroupResponse(
        error_code=error,
        members=[
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                error_code=one.error,
            )
            async for one in in_steps(left)
        ],
    )


API: Final = Api(
    key=ApiKey.LEAVE_GROUP,
    versions=(0, 5),
    request_class=GROUP,
    handle=handle,
    access=on_group(AclOperation.READ),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
