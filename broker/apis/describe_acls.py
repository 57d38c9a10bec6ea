"""DescribeAcls (29): list the access control lists that match a filter.

Versions: 1-3.

Behaviour: entries are grouped by pattern. Without an authorizer the response is
SECURITY_DISABLED, as in Kafka; MirrorMaker 2 depends on that code. A request can be
preempted between patterns.

Version notes: v1 has pattern types (KIP-290), v2 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.acl_requests import SECURITY_DISABLED, filter_of
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace


async def handle(
    request: Request, body: DescribeAclsRequest, broker: Broker
) -> DescribeAclsResponse:
    """List the entries that match the filter."""
    wanted = filter_of(body)
    if broker.authorizer is None:
        return DescribeAclsResponse(
            error_code=SECURITY_DISABLED.code,
            error_message=SECURITY_DISABLED.message,
            resources=(),
        )
    resources = []
    pace = Pace()
    async for pattern, entries in pace.over(
        tuple(broker.coordinator.admin.acls.items())
    ):
        if not wanted.passes_pattern(pattern):
            continue
        rows = [
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            async for entry in pace.over(entries)
            if wanted.passes_entry(entry)
        ]
        if rows:
            resources.append(
                DescribeAclsResource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=rows,
                )
            )
    return DescribeAclsResponse(
        error_code=ErrorCode.none, error_message=None, resources=resources
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_ACLS,
    versions=(1, 3),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.DESCRIBE),
)
