"""SyncGroup (14): distribute the leader's assignment to the members of a group.

Versions: 0-5.

Behaviour:
- The request is parked until the leader's assignment is in the log.

Version notes:
- v3 adds static members (KIP-345), v4 is flexible; from v5 on the protocol's type and
  name are mandatory and checked (KIP-559).

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_group
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to
from broker.authorization.acls import AclOperation
from broker.groups.state.group_messages import SyncAnswer, SyncRequest
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from broker.requests.classifier import GROUP
from broker.requests.request import Request

_PROTOCOL_SINCE: Final = 5


async def handle(
    request: Request, body: SyncGroupRequest, broker: Broker
) -> SyncGroupResponse:
    """Sync, and wait for the assignment."""
    if request.api_version >= _PROTOCOL_SINCE and None in (
        body.protocol_type,
        body.protocol_name,
    ):
        error = ErrorCode.inconsistent_group_protocol
        return _row(SyncAnswer(error=error))
    waiting = broker.groups.sync(
        SyncRequest(
            group_id=body.group_id,
            member_id=body.member_id,
            generation=body.generation_id,
            instance_id=body.group_instance_id,
            protocol_type=body.protocol_type,
            protocol_name=body.protocol_name,
            assignments={one.member_id: one.assignment for one in body.assignments},
        )
    )
    return _row(await answer_to(waiting, request))


def _row(synced: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


API: Final = Api(
    key=ApiKey.SYNC_GROUP,
    versions=(0, 5),
    request_class=GROUP,
    handle=handle,
    access=on_group(AclOperation.READ),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
