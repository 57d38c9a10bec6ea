"""JoinGroup (11): a consumer joins its group, or joins again.

Versions: 0-9.

Behaviour:
- The request is parked until the join phase of the group ends; the leader's response
  has the metadata of all members. Decisions are made in ``broker.groups``.

Version notes:
- v0 has one timeout for session and rebalance; since v4 a dynamic member first receives
  an id and joins again with it (KIP-394); v5 adds static members (KIP-345), v6 is
  flexible; before v7 a missing protocol name is the empty string (KIP-559); v9 lets the
  leader skip the assignment (KIP-814).

Left out: nothing; the client's ``reason`` (v8, KIP-800) is read and not kept.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_group
from broker.apis.common.answer import to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to
from broker.authorization.acls import AclOperation
from broker.groups.state.group_messages import GroupProtocol, JoinAnswer, JoinRequest
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from planes.slices import in_steps, preempt

_KNOWN_ID_SINCE: Final = 4
_NULL_PROTOCOL_SINCE: Final = 7
_SKIPPING_SINCE: Final = 9
# Bound of items; clients list only a few assignors.
_PROTOCOLS_MAX: Final = 1_000
_MEMBERS_PER_SLICE: Final = 512


async def handle(
    request: Request, body: JoinGroupRequest, broker: Broker
) -> JoinGroupResponse:
    """Join, and wait for the new generation."""
    version = request.api_version
    session_timeout_ms = to_ms(body.session_timeout)
    rebalance_timeout_ms = session_timeout_ms
    if version > 0:
        rebalance_timeout_ms = max(to_ms(body.rebalance_timeout), 0)
    protocols = [
        GroupProtocol(each.name, each.metadata)
        async for each in in_steps(body.protocols)
    ]
    waiting = broker.groups.join(
        JoinRequest(
            group_id=body.group_id,
            member_id=body.member_id,
            client_id=request.client_id,
            client_host=f"/{request.peer.host}",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=body.protocol_type,
            protocols=tuple(protocols),
            instance_id=body.group_instance_id,
            requires_known_member_id=version >= _KNOWN_ID_SINCE,
            supports_skipping_assignment=version >= _SKIPPING_SINCE,
        )
    )
    return await _row(await answer_to(waiting, request), version)


async def _row(joined: JoinAnswer, version: int) -> JoinGroupResponse:
    protocol_name = joined.protocol_name
    if protocol_name is None and version < _NULL_PROTOCOL_SINCE:
        protocol_name = ""
    members = []
    for number, member in enumerate(joined.members, 1):
        members.append(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
        )
        if not number % _MEMBERS_PER_SLICE:
            await preempt()
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=members,
    )


API: Final = Api(
    key=ApiKey.JOIN_GROUP,
    versions=(0, 9),
    request_class=GROUP,
    handle=handle,
    access=on_group(AclOperation.READ),
    items_max=_PROTOCOLS_MAX,
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
