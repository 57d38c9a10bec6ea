"""JoinGroup: a consumer enters its group, or enters it again.

Versions: 0-9.
Behaviour: parked until the join phase of the group ends; the leader is then shown the
metadata of all members. Everything is decided in ``broker.groups``.
Version notes: 0 has one timeout for session and rebalance; 4 wants a dynamic member to
come back with the id it is given (KIP-394); 5 brings static members (KIP-345); before 7
a missing protocol name is the empty string; 9 can tell the leader to skip the
assignment (KIP-814).
Left out: nothing; the client's ``reason`` (8, KIP-800) is read and not kept.
"""

from __future__ import annotations

from kio.schema.join_group.v9 import JoinGroupResponse
from kio.schema.join_group.v9.response import JoinGroupResponseMember
from kio.static.primitive import i32

from broker.apis.group_common import answer_to, milliseconds
from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.groups.messages import GroupProtocol, JoinAnswer, JoinRequest
from broker.request import Request
from broker.wire.codec import Entity

_FIRST_WITH_KNOWN_ID = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIPPING = 9


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """Join, and wait for the generation."""
    version = request.api_version
    session_timeout_ms = milliseconds(body.session_timeout)
    rebalance_timeout_ms = session_timeout_ms
    if version > 0:
        rebalance_timeout_ms = milliseconds(body.rebalance_timeout)
    waiting = broker.groups.join(
        JoinRequest(
            group_id=body.group_id,
            member_id=body.member_id,
            client_id=request.client_id,
            client_host=f"/{request.peer.host}",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
            protocol_type=body.protocol_type,
            protocols=tuple(GroupProtocol(p.name, p.metadata) for p in body.protocols),
            instance_id=getattr(body, "group_instance_id", None),
            requires_known_member_id=version >= _FIRST_WITH_KNOWN_ID,
            supports_skipping_assignment=version >= _FIRST_WITH_SKIPPING,
        )
    )
    return _response(await answer_to(waiting), version)


def _response(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and version < _FIRST_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=answer.error,
        generation_id=i32(answer.generation),
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ),
    )
