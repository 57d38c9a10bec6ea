"""Resources of the config APIs: their types, keys, and checks.

Configs of topics and groups override the broker's. Alterable configs of a broker can be
changed at runtime, for one broker or, with the empty name, as the default of all
brokers (KIP-226).
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.apis.common.access import allowed_on_cluster, check, check_topic, denied
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.client_metrics_configs import (
    CLIENT_METRICS_KEYS,
    check_client_metrics_configs,
)
from broker.cluster.cluster_topics import check_name
from broker.cluster.config_overrides import ConfigSource, OverrideKey
from broker.cluster.group_configs import GROUP_KEYS, check_group_configs
from broker.cluster.topic_configs import TOPIC_KEYS, check_topic_configs
from broker.config import BrokerConfig
from broker.config.alterable import check_threads, is_alterable, is_of_one_broker
from broker.config.tls_keys import check_altered_stores
from broker.coordination.coordinator_roles import ConfigKind
from broker.coordination.resource_paths import CLIENT_METRICS, GROUPS, resource_path
from broker.node.broker import Broker
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError
from broker.requests.request import Request


class ConfigResourceType(enum.IntEnum):
    """The served types of Kafka's ``ConfigResource.Type``."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Overrides(NamedTuple):
    """The configs of a type of resource, and the source of set configs."""

    keys: Mapping[str, OverrideKey]
    source: ConfigSource


# Overrides by type, except the broker's own configs.
OVERRIDES: Final[Mapping[int, Overrides]] = MappingProxyType(
    {
        ConfigResourceType.TOPIC: Overrides(
            TOPIC_KEYS, ConfigSource.DYNAMIC_TOPIC_CONFIG
        ),
        ConfigResourceType.CLIENT_METRICS: Overrides(
            CLIENT_METRICS_KEYS, ConfigSource.CLIENT_METRICS_CONFIG
        ),
        ConfigResourceType.GROUP: Overrides(GROUP_KEYS, ConfigSource.GROUP_CONFIG),
    }
)
# Path components of types whose resources consist of configs only.
PATH_KINDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS,
        ConfigResourceType.GROUP: GROUPS,
    }
)

# Names in Kafka's clients (``ConfigResource.Type``).
TYPE_NAMES: Final = MappingProxyType(
    {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
)


def _check_broker_name(name: str, broker: Broker) -> None:
    """Raise INVALID_REQUEST unless ``name`` is this broker, or empty (the default).

    Kafka's clients send a broker's resources to that broker.
    """
    if name not in ("", str(broker.replicas.local_id)):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.replicas.local_id} or empty "
            f"string, but received {name}",
        )


def check_logger_broker(name: str, broker: Broker) -> None:
    """Raise INVALID_REQUEST unless ``name`` is this broker."""
    if name != str(broker.replicas.local_id):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.replicas.local_id}, but received "
            f"{name!r}",
        )


def _unknown_type(number: int) -> KafkaError:
    """Return the error for an unsupported resource type."""
    name = TYPE_NAMES.get(number, "UNKNOWN")
    return KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {name}")


def check_access(
    request: Request, broker: Broker, operation: AclOperation, kind: int, name: str
) -> None:
    """Raise `KafkaError` unless an operation on a resource's configs is allowed.

    Configs of brokers and of client metrics belong to the cluster.
    """
    if kind == ConfigResourceType.TOPIC:
        check_topic(request, broker, operation, name)
    elif kind == ConfigResourceType.GROUP:
        check(request, broker, operation, ResourceType.GROUP, name)
    elif kind in (
        ConfigResourceType.BROKER,
        ConfigResourceType.BROKER_LOGGER,
        ConfigResourceType.CLIENT_METRICS,
    ) and not allowed_on_cluster(request, broker, operation):
        raise denied(ResourceType.CLUSTER)


async def replace_configs(
    kind: int,
    name: str,
    wanted: Callable[[], Awaitable[Mapping[str, str]]],
    broker: Broker,
    *,
    validate_only: bool,
) -> None:
    """Replace a resource's configs by those of ``wanted``; raise `KafkaError`.

    ``wanted`` is called again after a concurrent change of the resource, by another
    request or, under ZooKeeper, on another broker.
    """
    admin, done = broker.coordinator.admin, False
    while not done:
        if kind == ConfigResourceType.BROKER:
            # Hosts are resolved before the change, since a resolver may be slow.
            await _resolve_hosts(_altered(await wanted(), name, broker), broker)
        configs = await wanted()
        before = configs_to_alter(kind, name, broker)
        if kind == ConfigResourceType.TOPIC:
            check_topic_configs(configs, broker.config)
        elif kind == ConfigResourceType.GROUP:
            check_group_configs(configs, broker.config)
        elif kind == ConfigResourceType.CLIENT_METRICS:
            await check_client_metrics_configs(configs)
        else:
            _altered(configs, name, broker)
        if validate_only:
            return
        if kind == ConfigResourceType.TOPIC:
            done = await admin.set_topic_configs(name, configs, before)
        elif kind == ConfigResourceType.BROKER:
            done = await admin.set_configs(ConfigKind.BROKER, name, configs, before)
        else:
            path = resource_path(PATH_KINDS[kind], name)
            done = await admin.set_configs(ConfigKind.RESOURCE, path, configs, before)


def configs_to_alter(kind: int, name: str, broker: Broker) -> Mapping[str, str]:
    """Return the set configs of a resource to be altered; raise `KafkaError`."""
    if kind == ConfigResourceType.TOPIC and not name:
        raise KafkaError(
            ErrorCode.invalid_request, "Default topic resources are not allowed."
        )
    return present_configs(kind, name, broker)


def present_configs(kind: int, name: str, broker: Broker) -> Mapping[str, str]:
    """Return the set configs of a resource; raise if it does not exist."""
    if kind == ConfigResourceType.TOPIC:
        check_name(name)
        topic = broker.coordinator.admin.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}"
            )
        return topic.configs
    if kind == ConfigResourceType.BROKER:
        _check_broker_name(name, broker)
        return broker.coordinator.admin.configs[ConfigKind.BROKER].get(name, {})
    if kind not in PATH_KINDS:
        raise _unknown_type(kind)
    if not name:
        raise KafkaError(
            ErrorCode.invalid_request, f"A {TYPE_NAMES[kind]} needs a name."
        )
    path = resource_path(PATH_KINDS[kind], name)
    return broker.coordinator.admin.configs[ConfigKind.RESOURCE].get(path, {})


def _altered(configs: Mapping[str, str], name: str, broker: Broker) -> BrokerConfig:
    """Return the broker's configuration with dynamic configs; raise `KafkaError`."""
    fixed = sorted(each for each in configs if not is_alterable(each))
    if fixed:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {', '.join(fixed)}",
        )
    own = sorted(each for each in configs if is_of_one_broker(each))
    if own and not name:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs at default cluster level: {', '.join(own)}",
        )
    dynamic = broker.coordinator.admin.configs[ConfigKind.BROKER]
    try:
        # Also checked alone: a broker's own configs may hide a default of all brokers.
        broker.alterations.under({name: configs})
        altered = broker.alterations.under({**dynamic, name: configs})
        check_threads(broker.config, altered)
        check_altered_stores(broker.config, altered)
    except ConfigError as error:
        raise _invalid(error) from error
    return altered


async def _resolve_hosts(config: BrokerConfig, broker: Broker) -> None:
    try:
        await broker.hosts.resolve(config)
    except ConfigError as error:
        raise _invalid(error) from error


def _invalid(error: ConfigError) -> KafkaError:
    """Return the error for a broker's invalid config (for topics: INVALID_CONFIG)."""
    return KafkaError(ErrorCode.invalid_request, str(error))
