"""DeleteGroups (42): delete groups without members, with their offsets (KIP-229).

Versions: 0-3.

Behaviour:
- The response is sent once the tombstones are in ``__consumer_offsets``.
- A duplicate group is deleted once, with one row.
- A request can be preempted between groups, and after every few hundred offsets. A
  group with a new member is kept, without the offsets that are deleted already.

Version notes:
- v2 is flexible; v3 adds error messages, which Kafka uses for streams groups only.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import Check, check, in_handler
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.collecting import distinct
from broker.apis.common.group_common import answer_to
from broker.authorization.acls import AclOperation, ResourceType
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import preempt


async def handle(
    request: Request, body: DeleteGroupsRequest, broker: Broker
) -> DeleteGroupsResponse:
    """Delete each group, in order."""
    results = []
    for group_id in await distinct(body.groups_names):
        error = await _delete(request, group_id, broker)
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        await preempt()
    return DeleteGroupsResponse(results=results)


async def _delete(request: Request, group_id: str, broker: Broker) -> ErrorCode:
    offsets = broker.groups.offsets
    try:
        check(request, broker, AclOperation.DELETE, ResourceType.GROUP, group_id)
        while (thinning := offsets.thin_out(group_id)) is not None:
            error = await answer_to(thinning)
            if error is not ErrorCode.none:
                return error
            await preempt()
        return await answer_to(offsets.delete_group(group_id))
    except KafkaError as refused:
        return refused.code


API: Final = Api(
    key=ApiKey.DELETE_GROUPS,
    versions=(0, 3),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DELETE, ResourceType.GROUP),
    ),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_not_available,
        rows={"results": ("groups_names",)},
    ),
)
