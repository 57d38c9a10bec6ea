"""DescribeAcls (29): which ACLs match a filter.

Versions: 1-3.

Behaviour: there is no authorizer, and the answer says so with SECURITY_DISABLED, as
Kafka's does. MirrorMaker 2 looks for that code.

Version notes: v1 has pattern types (KIP-290), v2 is flexible.

Left out: an authorizer.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.api import Api
from broker.apis.common.no_authorizer import SECURITY_DISABLED, check_known
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request


async def handle(
    request: Request, body: DescribeAclsRequest, broker: Broker
) -> DescribeAclsResponse:
    """Answer that there are no ACLs."""
    check_known(
        resource_type_filter=body.resource_type_filter,
        pattern_type_filter=body.pattern_type_filter,
        operation=body.operation,
        permission_type=body.permission_type,
    )
    return DescribeAclsResponse(
        error_code=SECURITY_DISABLED.code,
        error_message=SECURITY_DISABLED.message,
        resources=(),
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), request_class=ADMIN, handle=handle
)
