"""Heartbeat (12): extend a member's session, and report rebalances.

Versions: 0-4.

Behaviour:
- The response is sent at once, with REBALANCE_IN_PROGRESS while members join.
- While the group is being loaded the response has no error, as in Kafka.

Version notes:
- v3 adds static members (KIP-345), v4 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_group
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.requests.classifier import GROUP
from broker.requests.request import Request


async def handle(
    request: Request, body: HeartbeatRequest, broker: Broker
) -> HeartbeatResponse:
    """Extend the member's session."""
    error = broker.groups.heartbeat(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id,
    )
    return HeartbeatResponse(error_code=error)


API: Final = Api(
    key=ApiKey.HEARTBEAT,
    versions=(0, 4),
    request_class=GROUP,
    handle=handle,
    access=on_group(AclOperation.READ),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
