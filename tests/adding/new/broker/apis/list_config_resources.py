"""ListConfigResources (74): names of resources of kinds that this broker does not have.

Versions: 0.

Behaviour:
- There are none.

Left out: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from broker.apis.common.api import Api
from broker.apis.common.load import Occasion, Shape
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Shape):
    """LIST_CONFIG_RESOURCES, which has no parameters."""

    def body(self, on: Occasion) -> ListConfigResourcesRequest:
        """Return a request, all of which is its header."""
        return ListConfigResourcesRequest()


API: Final = Api(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    load=Load,
)
