"""DescribeCluster (60): the cluster's id, its controller and its brokers (KIP-700).

Versions: 0-2.

Behaviour: the same data as in Metadata, for the listener of the request.

Version notes: v1 requests brokers (1) or controllers (2). Controllers are described at
their own listener only, so the response here is MISMATCHED_ENDPOINT_TYPE (KIP-919). v2
can include fenced brokers (KIP-1073); no broker is ever fenced here.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import Check, cluster_operations, in_handler
from broker.apis.common.answer import NOT_ASKED
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation, ResourceType
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


async def handle(
    request: Request, body: DescribeClusterRequest, broker: Broker
) -> DescribeClusterResponse:
    """Describe the cluster."""
    endpoint_type = body.endpoint_type
    error, message = ErrorCode.none, None
    if endpoint_type == _CONTROLLERS:
        error = ErrorCode.mismatched_endpoint_type
        message = "The request was sent to an endpoint of type BROKER"
    elif endpoint_type != _BROKERS:
        error = ErrorCode.unsupported_endpoint_type
        message = f"Unsupported endpoint type {endpoint_type}"
    cache = broker.metadata_cache
    reached = cache.on_listener(request.peer.listener) if message is None else []
    is_requested = body.include_cluster_authorized_operations and message is None
    return DescribeClusterResponse(
        error_code=error,
        error_message=message,
        endpoint_type=_BROKERS,
        cluster_id=(broker.cluster_id or "") if message is None else "",
        controller_id=cache.controller_id if message is None else -1,
        brokers=[
            DescribeClusterBroker(
                broker_id=each.broker.id,
                host=each.host,
                port=each.port,
                rack=each.broker.rack,
            )
            for each in reached
        ],
        cluster_authorized_operations=(
            cluster_operations(request, broker) if is_requested else NOT_ASKED
        ),
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_CLUSTER,
    versions=(0, 2),
    request_class=METADATA,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    ),
)
