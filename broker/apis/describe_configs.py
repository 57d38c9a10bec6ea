"""DescribeConfigs (32): describe configs of topics, brokers and groups, with sources.

Versions: 1-4.

Behaviour:
- A topic has all its configs; a broker has all its keys, or with the empty name only
  the dynamic defaults of all brokers. A request may select keys by name.
- A group has the configs of a consumer group of its name, even if it does not exist,
  and so has a subscription of client metrics.
- Passwords are never returned.
- A broker's loggers are listed with their effective levels (KIP-412).

Version notes: v1 adds sources and synonyms (KIP-226), v3 types and documentation
(KIP-569), v4 is flexible.

Left out: v0; configs of share and streams groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from broker.apis.common.access import Check, in_handler
from broker.apis.common.answer import NO_ERROR
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.collecting import distinct
from broker.apis.common.config_resources import (
    OVERRIDES,
    ConfigResourceType,
    check_access,
    check_logger_broker,
    present_configs,
)
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.config_overrides import (
    ConfigSource,
    DescribedConfig,
    Synonym,
    describe_overrides,
    written,
)
from broker.config import KEYS, ConfigType, Key, find_key
from broker.config.alterable import is_alterable
from broker.node.broker import Broker
from broker.observation.log_levels import log_levels
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import KafkaError
from broker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt


async def handle(
    request: Request, body: DescribeConfigsRequest, broker: Broker
) -> DescribeConfigsResponse:
    """Describe the resources, one after the other."""
    rows = []
    for resource in body.resources:
        kind, name = resource.resource_type, resource.resource_name
        outcome = NO_ERROR
        configs: list[DescribeConfigsResourceResult] = []
        try:
            check_access(request, broker, AclOperation.DESCRIBE_CONFIGS, kind, name)
            configs = await _configs(resource, body, broker)
        except KafkaError as error:
            outcome = error
        rows.append(
            DescribeConfigsResult(
                resource_type=kind,
                resource_name=name,
                configs=configs,
                error_code=outcome.code,
                error_message=outcome.message,
            )
        )
        await preempt()
    return DescribeConfigsResponse(results=rows)


async def _configs(
    resource: DescribeConfigsResource, body: DescribeConfigsRequest, broker: Broker
) -> list[DescribeConfigsResourceResult]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigResourceType.BROKER_LOGGER:
        return await _loggers(resource, broker)
    wanted = await distinct(resource.configuration_keys or ())
    present = present_configs(kind, name, broker)
    if kind in OVERRIDES:
        found: Iterable[DescribedConfig] = describe_overrides(
            *OVERRIDES[kind], present, broker.config, broker.alterations.written_as
        )
    elif name:
        found = (
            *(
                _of_broker(key, broker)
                for _, key in sorted(KEYS.items())
                if not key.internal and (not wanted or key.name in wanted)
            ),
            *(
                _as_written(name, broker.alterations.written_as(name))
                for name in sorted(broker.config.written)
                if name not in KEYS or KEYS[name].internal
            ),
        )
    else:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        found = [
            _as_written(key, [Synonym(key, value, source)])
            for key, value in sorted(present.items())
            # Under ZooKeeper a tool may have set unknown keys.
            if find_key(key) is not None
        ]
    return [
        _row(
            config,
            kind,
            synonyms=body.include_synonyms,
            documented=body.include_documentation,
        )
        async for config in in_steps(found)
        if not wanted or config.key.name in wanted
    ]


async def _loggers(
    resource: DescribeConfigsResource, broker: Broker
) -> list[DescribeConfigsResourceResult]:
    check_logger_broker(resource.resource_name, broker)
    wanted = await distinct(resource.configuration_keys or ())
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=level,
            read_only=False,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            synonyms=(),
        )
        for name, level in log_levels().items()
        if not wanted or name in wanted
    ]


def _of_broker(key: Key[Any], broker: Broker) -> DescribedConfig:
    effective = written(broker.config[key])
    value = written(broker.config.default(key))
    default = Synonym(key.name, value, ConfigSource.DEFAULT_CONFIG)
    # A default of null is not listed as a source.
    defaults = () if default.value is None else (default,)
    places = (*broker.alterations.written_as(key.name), *defaults)
    source = places[0].source if places else default.source
    return DescribedConfig(key, effective, source, places)


def _as_written(name: str, places: Sequence[Synonym]) -> DescribedConfig:
    """Describe the config of a name, which may have a listener's prefix."""
    key = find_key(name)
    assert key is not None, name
    strongest = places[0]
    return DescribedConfig(
        replace(key, name=name), strongest.value, strongest.source, tuple(places)
    )


def _row(
    config: DescribedConfig, kind: int, *, synonyms: bool, documented: bool
) -> DescribeConfigsResourceResult:
    key = config.key
    secret = key.type is ConfigType.PASSWORD
    dynamic = kind in OVERRIDES or is_alterable(key.name)
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if secret else config.value,
        read_only=not dynamic,
        config_source=int(config.source),
        is_sensitive=secret,
        synonyms=[
            DescribeConfigsSynonym(
                name=each.name,
                value=None if secret else each.value,
                source=int(each.source),
            )
            for each in (config.synonyms if synonyms else ())
        ],
        config_type=int(key.type),
        documentation=key.doc if documented else None,
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_CONFIGS,
    versions=(1, 4),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
        Check(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP),
        Check(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
    ),
    error_answer=ErrorAnswer(rows={"results": ("resources",)}),
)
