"""Whose configs are meant: the resources that the three config APIs share.

A topic's configs are overrides of the broker's; a broker's can be changed while it runs
for those keys that act on what is read again each time, for one broker or, under the
empty name, as every broker's default (KIP-226).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from broker.cluster.broker_state import Broker
from broker.cluster.topic_configs import TOPIC_KEYS, check_topic_configs
from broker.cluster.topics import check_name
from broker.config import KEYS, find_key
from broker.errors import ConfigError, ErrorCode, KafkaError
from broker.network_settings import connection_limits


class ResourceType(enum.IntEnum):
    """Kafka's ``ConfigResource.Type``, as far as it is served."""

    TOPIC = 2
    BROKER = 4


# Kafka's ``DynamicLogConfig``, ``DynamicConnectionQuota`` and a few of their kind:
# the first broker key behind each topic config, and what is asked at each use.
DYNAMIC_BROKER_KEYS: Final = frozenset(
    {
        *(
            topic_key.broker_keys[0].name
            for topic_key in TOPIC_KEYS.values()
            if topic_key.broker_keys
        ),
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "producer.id.expiration.ms",
    }
)

# What a listener can have a bound of its own for, behind ``listener.name.NAME.``.
_DYNAMIC_LISTENER_KEYS: Final = frozenset(
    {"max.connection.creation.rate", "max.connections"}
)


def is_dynamic(name: str) -> bool:
    """Tell whether a broker's config can be changed while it runs."""
    key = find_key(name)
    if key is None or key.name == name:
        return name in DYNAMIC_BROKER_KEYS
    return key.name in _DYNAMIC_LISTENER_KEYS


def check_broker_name(name: str, broker: Broker) -> None:
    """Raise INVALID_REQUEST unless ``name`` is this broker, or every broker's default.

    Kafka's clients send a broker's resources to that broker.
    """
    if name not in ("", str(broker.replicas.local_id)):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.replicas.local_id} or empty "
            f"string, but received {name}",
        )


def unknown_type(number: int) -> KafkaError:
    """Return the error for a resource that has no configs here."""
    return KafkaError(ErrorCode.invalid_request, f"Unsupported resource type {number}")


async def replace_configs(
    kind: int,
    name: str,
    configs: Mapping[str, str],
    broker: Broker,
    *,
    validate_only: bool,
) -> None:
    """Give a resource these configs instead of those it has, or raise."""
    if kind == ResourceType.TOPIC:
        check_topic_configs(configs, broker.config)
        if not validate_only:
            await broker.coordinator.set_topic_configs(name, configs)
    else:
        _check_broker_configs(configs, broker)
        if not validate_only:
            await broker.coordinator.set_broker_configs(name, configs)


def configs_to_alter(kind: int, name: str, broker: Broker) -> Mapping[str, str]:
    """Return the configs that were set for a resource that may be altered, or raise."""
    if kind == ResourceType.TOPIC and not name:
        raise KafkaError(
            ErrorCode.invalid_request, "Default topic resources are not allowed."
        )
    return present_configs(kind, name, broker)


def present_configs(kind: int, name: str, broker: Broker) -> Mapping[str, str]:
    """Return the configs that were set for a resource, or raise if there is none."""
    if kind == ResourceType.TOPIC:
        check_name(name)
        topic = broker.coordinator.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}"
            )
        return topic.configs
    if kind == ResourceType.BROKER:
        check_broker_name(name, broker)
        return broker.coordinator.broker_configs.get(name, {})
    raise unknown_type(kind)


def _check_broker_configs(configs: Mapping[str, str], broker: Broker) -> None:
    fixed = sorted(name for name in configs if not is_dynamic(name))
    if fixed:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {', '.join(fixed)}",
        )
    try:
        # Hosts have to be known to take effect.
        connection_limits(broker.config.updated(configs))
    except ConfigError as error:
        # Of a topic this would be INVALID_CONFIG.
        raise KafkaError(ErrorCode.invalid_request, str(error)) from error


assert KEYS.keys() >= DYNAMIC_BROKER_KEYS
