"""IncrementalAlterConfigs (44): set, unset, extend or shorten single configs (KIP-339).

Versions: 0-1.

Behaviour:
- Operations: 0 sets, 1 unsets, 2 appends to a list, 3 removes from a list; the latter
  two start from the effective value. They return INVALID_CONFIG for a config that is
  not a list; lists of client metrics can only be set, as in Kafka.
- Each resource succeeds or fails independently and as a whole; a successful change is
  durable and in effect before the response.
- Levels of a broker's loggers can be set and unset; they last until a restart
  (KIP-412).

Version notes: v1 is flexible.

Left out: configs of share and streams groups; alter policies; an altered
`num.network.threads` is kept, and counts from the next start. Client metrics have no
effect, and their expressions are those of RE2. Under ZooKeeper groups and client
metrics have no configs (INVALID_REQUEST).
"""

from __future__ import annotations

import enum
from functools import partial
from typing import Final

from broker.apis.common.access import Check, in_handler
from broker.apis.common.answer import NO_ERROR
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.collecting import distinct
from broker.apis.common.config_resources import (
    ConfigResourceType,
    check_access,
    check_logger_broker,
    configs_to_alter,
    replace_configs,
)
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.topic_configs import TOPIC_KEYS, topic_value
from broker.config import KEYS
from broker.node.broker import Broker
from broker.observation.log_levels import LEVELS, ROOT_NAME, has_logger, set_level
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt


class Operation(enum.IntEnum):
    """Kafka's ``AlterConfigOp.OpType``."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    request: Request, body: IncrementalAlterConfigsRequest, broker: Broker
) -> IncrementalAlterConfigsResponse:
    """Alter the resources, one after the other."""
    rows = []
    for resource in body.resources:
        kind, name = resource.resource_type, resource.resource_name
        outcome = NO_ERROR
        try:
            check_access(request, broker, AclOperation.ALTER_CONFIGS, kind, name)
            if kind == ConfigResourceType.BROKER_LOGGER:
                await _alter_levels(resource, broker, validate_only=body.validate_only)
            else:
                await replace_configs(
                    kind,
                    name,
                    partial(_altered, resource, broker),
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
    return IncrementalAlterConfigsResponse(responses=rows)


async def _alter_levels(
    resource: AlterConfigsResource, broker: Broker, *, validate_only: bool
) -> None:
    """Set the levels of loggers, all or none."""
    check_logger_broker(resource.resource_name, broker)
    await _check_named_once(resource)
    levels = {entry.name: _level(entry) async for entry in in_steps(resource.configs)}
    if not validate_only:
        for name, level in levels.items():
            set_level(name, level)


def _level(entry: AlterableConfig) -> str | None:
    """Return the level that an entry sets, or None to unset; raise `KafkaError`."""
    name = entry.name
    operation = _operation(entry)
    if operation not in (Operation.SET, Operation.DELETE):
        raise KafkaError(
            ErrorCode.invalid_request, f"{operation.name} is not for levels of loggers"
        )
    if operation is Operation.SET and entry.value is None:
        raise KafkaError(ErrorCode.invalid_request, f"{name} has no value")
    if not has_logger(name):
        raise KafkaError(ErrorCode.invalid_config, f"there is no logger {name!r}")
    if operation is Operation.DELETE:
        if name == ROOT_NAME:
            raise KafkaError(
                ErrorCode.invalid_request, "the level of the root is never unset"
            )
        return None
    if entry.value not in LEVELS:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"no level of {name}: {entry.value!r}; one of {', '.join(LEVELS)}",
        )
    return entry.value


async def _check_named_once(resource: AlterConfigsResource) -> None:
    names = await distinct(entry.name for entry in resource.configs)
    if len(names) < len(resource.configs):
        raise KafkaError(ErrorCode.invalid_request, "a config is named more than once")


async def _altered(resource: AlterConfigsResource, broker: Broker) -> dict[str, str]:
    """Return the configs of a resource after the operations."""
    kind, name = resource.resource_type, resource.resource_name
    await _check_named_once(resource)
    configs = dict(configs_to_alter(kind, name, broker))
    async for entry in in_steps(resource.configs):
        _alter(configs, entry, kind, broker)
    return configs


def _operation(entry: AlterableConfig) -> Operation:
    try:
        return Operation(entry.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.invalid_request, f"operation {entry.config_operation}"
        ) from None


def _alter(
    configs: dict[str, str], entry: AlterableConfig, kind: int, broker: Broker
) -> None:
    operation = _operation(entry)
    if operation is Operation.DELETE:
        configs.pop(entry.name, None)
        return
    if entry.value is None:
        raise KafkaError(ErrorCode.invalid_request, f"{entry.name} has no value")
    if operation is Operation.SET:
        configs[entry.name] = entry.value
        return
    items = dict.fromkeys(_list(configs, entry.name, kind, broker))
    given = dict.fromkeys(
        item.strip() for item in entry.value.split(",") if item.strip()
    )
    if operation is Operation.APPEND:
        items |= given
    else:
        items = {item: None for item in items if item not in given}
    configs[entry.name] = ",".join(items)


def _list(
    configs: dict[str, str], name: str, kind: int, broker: Broker
) -> tuple[str, ...]:
    """Return the effective value of a list; raise if the config is not a list."""
    found: object = None
    if kind == ConfigResourceType.TOPIC and name in TOPIC_KEYS:
        found = topic_value(name, configs, broker.config)
    elif kind == ConfigResourceType.BROKER and name in KEYS:
        found = broker.config[KEYS[name]]
    if not isinstance(found, tuple):
        raise KafkaError(ErrorCode.invalid_config, f"{name} is not a list")
    return found


API: Final = Api(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions=(0, 1),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC),
        Check(AclOperation.ALTER_CONFIGS, ResourceType.GROUP),
        Check(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
    ),
    error_answer=ErrorAnswer(rows={"responses": ("resources",)}),
)
