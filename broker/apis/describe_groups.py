"""DescribeGroups (15): describe the members of groups, and their assignments.

Versions: 0-6.

Behaviour:
- A missing group, or a consumer group (KIP-848), is described as Dead, without an error
  before v6.
- Metadata and protocol are returned for a stable group only.
- A request can be preempted between groups.

Version notes:
- v3 can request authorized operations (KIP-430); v4 has the instance id of a static
  member (KIP-345); v5 is flexible; v6 returns GROUP_ID_NOT_FOUND for a missing group,
  and error messages (KIP-1043).

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.apis.common.access import Check, check, in_handler
from broker.apis.common.answer import NOT_ASKED
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import described
from broker.authorization.acls import AclOperation, ResourceType
from broker.groups.state.group import Group
from broker.groups.state.transitions import GroupState
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps

# The first version with an error for an unknown group.
_NOT_FOUND_SINCE: Final = 6


async def handle(
    request: Request, body: DescribeGroupsRequest, broker: Broker
) -> DescribeGroupsResponse:
    """Describe each group."""
    rows = await described(
        request,
        broker,
        body.groups,
        _describe,
        with_operations=body.include_authorized_operations,
    )
    return DescribeGroupsResponse(groups=rows)


async def _describe(request: Request, group_id: str, broker: Broker) -> DescribedGroup:
    try:
        check(request, broker, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        group = broker.groups.describe(group_id)
    except KafkaError as refused:
        return _row(group_id, error=refused.code)
    if not isinstance(group, Group) and request.api_version >= _NOT_FOUND_SINCE:
        return _row(
            group_id,
            error=ErrorCode.group_id_not_found,
            message=(
                f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a classic group."
            ),
            state=GroupState.DEAD.value,
        )
    if not isinstance(group, Group):
        return _row(group_id, state=GroupState.DEAD.value)
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return _row(
        group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=protocol or "",
        members=await _members(group, protocol),
    )


def _row(
    group_id: str,
    *,
    error: ErrorCode = ErrorCode.none,
    message: str | None = None,
    state: str = "",
    protocol_type: str = "",
    protocol: str = "",
    members: Sequence[DescribedGroupMember] = (),
) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type=protocol_type,
        protocol_data=protocol,
        members=members,
        authorized_operations=NOT_ASKED,
    )


async def _members(
    group: Group, protocol: str | None
) -> Sequence[DescribedGroupMember]:
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"" if protocol is None else member.metadata(protocol),
            member_assignment=b"" if protocol is None else member.assignment,
        )
        async for member in in_steps(tuple(group.roster))
    ]


API: Final = Api(
    key=ApiKey.DESCRIBE_GROUPS,
    versions=(0, 6),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.GROUP),
    ),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_not_available,
        rows={"groups": ("groups",)},
    ),
)
