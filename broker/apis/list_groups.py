"""ListGroups (16): list the groups that this broker coordinates.

Versions: 0-5.

Behaviour:
- COORDINATOR_LOAD_IN_PROGRESS is returned, with the groups loaded so far, while
  partitions of ``__consumer_offsets`` are being read.

Version notes:
- v3 is flexible; v4 filters by state (KIP-518), v5 by type (KIP-848).

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.apis.common.access import Check, allowed, allowed_on_cluster, in_handler
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation, ResourceType
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps


async def handle(
    request: Request, body: ListGroupsRequest, broker: Broker
) -> ListGroupsResponse:
    """List the groups that pass the filters."""
    states = await _wanted(body.states_filter)
    types = await _wanted(body.types_filter)
    error, groups = broker.groups.list_groups()
    shows_all = allowed_on_cluster(
        request, broker, AclOperation.DESCRIBE, logs_denial=False
    )
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.kind,
            )
            async for group in in_steps(groups)
            if (not states or group.state_name.lower() in states)
            and (not types or group.kind in types)
            and (
                shows_all
                or allowed(
                    request,
                    broker,
                    AclOperation.DESCRIBE,
                    ResourceType.GROUP,
                    group.group_id,
                    logs_denial=False,
                )
            )
        ],
    )


async def _wanted(names: Sequence[str]) -> frozenset[str]:
    """Return the names of a filter; an empty set matches all."""
    return frozenset([name.strip().lower() async for name in in_steps(names)])


API: Final = Api(
    key=ApiKey.LIST_GROUPS,
    versions=(0, 5),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.CLUSTER),
        Check(AclOperation.DESCRIBE, ResourceType.GROUP),
    ),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
