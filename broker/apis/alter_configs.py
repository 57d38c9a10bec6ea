"""AlterConfigs (33): give resources new configs in place of all that they had.

Versions: 0-2.

Behaviour: each resource succeeds or fails alone; what succeeds is durable and in effect
with the answer. Kafka has deprecated it for IncrementalAlterConfigs, because a config
that is not named is lost.

Version notes: v2 is flexible.

Left out: resources other than topics and brokers (INVALID_REQUEST), alter policies.
"""

from __future__ import annotations

from broker.apis.answer import Row, answer, failure
from broker.apis.config_resources import configs_to_alter, replace_configs
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode, KafkaError
from broker.request import Request
from broker.wire.codec import Entity


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Alter the resources, one after the other."""
    rows = []
    for resource in body.resources:
        kind, name = resource.resource_type, resource.resource_name
        outcome = {"error_code": ErrorCode.none, "error_message": None}
        try:
            configs_to_alter(kind, name, broker)
            await replace_configs(
                kind,
                name,
                _wanted(resource),
                broker,
                validate_only=body.validate_only,
            )
        except KafkaError as error:
            outcome = failure(error)
        rows.append(Row(resource_type=kind, resource_name=name, **outcome))
    return answer(responses=rows)


def _wanted(resource: Entity) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for config in resource.configs:
        if config.name in wanted:
            raise KafkaError(
                ErrorCode.invalid_request, f"{config.name} is named more than once"
            )
        if config.value is None:
            raise KafkaError(ErrorCode.invalid_config, f"{config.name} has no value")
        wanted[config.name] = config.value
    return wanted
