"""ListConfigResources (74): list the resources that have configs (KIP-1142).

Versions: 0-1.

Behaviour: the response has all topics, all brokers and their loggers, and the groups
and subscriptions of client metrics that have configs. For a kind that Kafka does not
list the whole request is UNSUPPORTED_VERSION.

Version notes: v0 lists client metrics only (KIP-714); v1 has kinds, none meaning all.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.apis.common.config_resources import (
    PATH_KINDS,
    TYPE_NAMES,
    ConfigResourceType,
)
from broker.authorization.acls import AclOperation
from broker.coordination.coordinator_roles import ConfigKind
from broker.coordination.resource_paths import read_path
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps

# The first version that lists more than client metrics.
_KINDS_SINCE: Final = 1


async def handle(
    request: Request, body: ListConfigResourcesRequest, broker: Broker
) -> ListConfigResourcesResponse:
    """List the resources of each requested kind."""
    kinds = {int(kind) async for kind in in_steps(body.resource_types)}
    if request.api_version < _KINDS_SINCE:
        kinds = {ConfigResourceType.CLIENT_METRICS}
    if not kinds <= TYPE_NAMES.keys():
        return ListConfigResourcesResponse(
            error_code=ErrorCode.unsupported_version, config_resources=[]
        )
    rows: list[ConfigResource] = []
    cache = broker.metadata_cache.view()
    if not kinds or ConfigResourceType.TOPIC in kinds:
        rows += [
            ConfigResource(
                resource_name=topic.name, resource_type=ConfigResourceType.TOPIC
            )
            async for topic in in_steps(cache.topics())
        ]
    rows += [
        ConfigResource(resource_name=str(each.broker.id), resource_type=kind)
        for kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        if not kinds or kind in kinds
        for each in cache.on_listener(request.peer.listener)
    ]
    for kind, word in PATH_KINDS.items():
        if not kinds or kind in kinds:
            paths = tuple(broker.coordinator.admin.configs[ConfigKind.RESOURCE])
            rows += [
                ConfigResource(resource_name=path.name, resource_type=kind)
                async for path in in_steps(map(read_path, paths))
                if path.kind == word
            ]
    return ListConfigResourcesResponse(error_code=ErrorCode.none, config_resources=rows)


API: Final = Api(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    versions=(0, 1),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.DESCRIBE_CONFIGS),
)
