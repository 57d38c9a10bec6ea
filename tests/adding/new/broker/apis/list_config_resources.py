"""ListConfigResources (74): names of resources of kinds that this broker does not have.

Versions: 0.

Behaviour:
- There are none.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.requests.classifier import ADMIN
from broker.requests.request import Request


async def handle(
    request: Request, body: ListConfigResourcesRequest, broker: Broker
) -> ListConfigResourcesResponse:
    """List nothing."""
    return ListConfigResourcesResponse(error_code=ErrorCode.none, config_resources=[])


API: Final = Api(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.DESCRIBE_CONFIGS),
)
