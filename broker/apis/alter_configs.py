"""AlterConfigs (33): replace all configs of resources.

Versions: 0-2.

Behaviour: each resource succeeds or fails independently; a successful change is durable
and in effect before the response. Kafka has deprecated this API in favour of
IncrementalAlterConfigs, because configs that the request omits are lost.

Version notes: v2 is flexible.

Left out: levels of loggers, which Kafka alters by IncrementalAlterConfigs only
(INVALID_REQUEST); configs of share and streams groups; alter policies; an altered
`num.network.threads` is kept, and counts from the next start. Client metrics have no
effect, and their expressions are those of RE2. Under ZooKeeper groups and client
metrics have no configs (INVALID_REQUEST).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.apis.common.access import Check, in_handler
from broker.apis.common.answer import NO_ERROR
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.config_resources import (
    check_access,
    configs_to_alter,
    replace_configs,
)
from broker.authorization.acls import AclOperation, ResourceType
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt


async def handle(
    request: Request, body: AlterConfigsRequest, broker: Broker
) -> AlterConfigsResponse:
    """Alter the resources, one after the other."""
    rows = []
    for resource in body.resources:
        kind, name = resource.resource_type, resource.resource_name
        outcome = NO_ERROR
        try:
            check_access(request, broker, AclOperation.ALTER_CONFIGS, kind, name)
            configs_to_alter(kind, name, broker)
            await replace_configs(
                kind,
                name,
                partial(_wanted, resource),
                broker,
                validate_only=body.validate_only,
            )
        except KafkaError as error:
            outcome = error
        rows.append(
            AlterConfigsResourceResponse(
                resource_type=kind,
                resource_name=name,
                error_code=outcome.code,
                error_message=outcome.message,
            )
        )
        await preempt()
    return AlterConfigsResponse(responses=rows)


async def _wanted(resource: AlterConfigsResource) -> dict[str, str]:
    wanted: dict[str, str] = {}
    async for config in in_steps(resource.configs):
        if config.name in wanted:
            raise KafkaError(
                ErrorCode.invalid_request, f"{config.name} is named more than once"
            )
        if config.value is None:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name} has no value")
        wanted[config.name] = config.value
    return wanted


API: Final = Api(
    key=ApiKey.ALTER_CONFIGS,
    versions=(0, 2),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC),
        Check(AclOperation.ALTER_CONFIGS, ResourceType.GROUP),
        Check(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
    ),
    error_answer=ErrorAnswer(rows={"responses": ("resources",)}),
)
