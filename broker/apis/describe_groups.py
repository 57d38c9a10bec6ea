"""DescribeGroups: who is in a group, and what each member was assigned.

Versions: 0-5.
Behaviour: a group that is not there is described as Dead, without an error; metadata
and protocol are told of a stable group only.
Version notes: 3 can ask for authorized operations (KIP-430); 4 tells the instance of a
static member (KIP-345).
Left out: authorized operations, for want of an authorizer: none are reported, as Kafka
does when nobody asked.
"""

from __future__ import annotations

from kio.schema.describe_groups.v5 import DescribeGroupsResponse
from kio.schema.describe_groups.v5.response import DescribedGroup, DescribedGroupMember
from kio.schema.types import GroupId

from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode, KafkaError
from broker.groups.group import Group
from broker.groups.transitions import GroupState
from broker.request import Request
from broker.wire.codec import Entity
from planes.slices import preempt


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """Describe each group that was named."""
    described = []
    for group_id in body.groups:
        described.append(_describe(group_id, broker))
        await preempt()
    return DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=tuple(described))


def _describe(group_id: str, broker: Broker) -> DescribedGroup:
    try:
        group = broker.groups.describe(group_id)
    except KafkaError as refused:
        return _without_members(group_id, "", refused.code)
    if group is None:
        return _without_members(group_id, GroupState.DEAD.value, ErrorCode.none)
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId(group_id),
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=_members(group, group.protocol_name if stable else None),
    )


def _members(
    group: Group, protocol_name: str | None
) -> tuple[DescribedGroupMember, ...]:
    return tuple(
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=(
                b"" if protocol_name is None else member.metadata(protocol_name)
            ),
            member_assignment=member.assignment,
        )
        for member in group.roster
    )


def _without_members(group_id: str, state: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        group_id=GroupId(group_id),
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
    )
