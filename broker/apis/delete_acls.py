"""DeleteAcls (31): delete the ACLs that match filters.

Versions: 1-3.

Behaviour: there is no authorizer, and each filter is answered with SECURITY_DISABLED,
as Kafka does.

Version notes: v1 has pattern types (KIP-290), v2 is flexible.

Left out: an authorizer.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.no_authorizer import SECURITY_DISABLED, check_known
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps


async def handle(
    request: Request, body: DeleteAclsRequest, broker: Broker
) -> DeleteAclsResponse:
    """Delete none."""
    async for each in in_steps(body.filters):
        check_known(
            resource_type_filter=each.resource_type_filter,
            pattern_type_filter=each.pattern_type_filter,
            operation=each.operation,
            permission_type=each.permission_type,
        )
    rows = [
        DeleteAclsFilterResult(
            error_code=SECURITY_DISABLED.code,
            error_message=SECURITY_DISABLED.message,
            matching_acls=(),
        )
        async for _ in in_steps(body.filters)
    ]
    return DeleteAclsResponse(filter_results=rows)


API: Final = Api(
    key=ApiKey.DELETE_ACLS,
    versions=(1, 3),
    request_class=ADMIN,
    handle=handle,
    error_answer=ErrorAnswer(rows={"filter_results": ("filters",)}),
)
