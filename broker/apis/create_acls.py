"""CreateAcls (30): allow or deny principals what they ask for.

Versions: 1-3.

Behaviour: there is no authorizer, and each ACL is answered with SECURITY_DISABLED, as
Kafka does.

Version notes: v1 has pattern types (KIP-290), v2 is flexible.

Left out: an authorizer.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.no_authorizer import SECURITY_DISABLED, check_known
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps


async def handle(
    request: Request, body: CreateAclsRequest, broker: Broker
) -> CreateAclsResponse:
    """Create none."""
    async for acl in in_steps(body.creations):
        check_known(
            resource_type=acl.resource_type,
            resource_pattern_type=acl.resource_pattern_type,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
    return CreateAclsResponse(
        results=[
            AclCreationResult(
                error_code=SECURITY_DISABLED.code,
                error_message=SECURITY_DISABLED.message,
            )
            async for _ in in_steps(body.creations)
        ]
    )


API: Final = Api(
    key=ApiKey.CREATE_ACLS,
    versions=(1, 3),
    request_class=ADMIN,
    handle=handle,
    error_answer=ErrorAnswer(rows={"results": ("creations",)}),
)
