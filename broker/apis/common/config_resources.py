"""Whose configs are meant: the resources that the three config APIs share.

A topic's configs are overrides of the broker's. Those of a broker's that are alterable
can be changed while it runs, for one broker or, under the empty name, as every broker's
default (KIP-226).
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from broker.apis.common.access import allowed_on_cluster, check_topic, denied
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.topic_configs import check_topic_configs
from broker.cluster.topics import check_name
from broker.config import BrokerConfig
from broker.config.alterable import check_threads, is_alterable, is_of_one_broker
from broker.config.tls import check_altered_stores
from broker.node.broker import Broker
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError
from broker.requests.request import Request


class ConfigResourceType(enum.IntEnum):
    """Kafka's ``ConfigResource.Type``, as far as it is served."""

    TOPIC = 2
    BROKER = 4


# As Kafka's clients spell them (``ConfigResource.Type``).
TYPE_NAMES: Final = MappingProxyType(
    {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
)


def _check_broker_name(name: str, broker: Broker) -> None:
    """Raise INVALID_REQUEST unless ``name`` is this broker, or every broker's default.

    Kafka's clients send a broker's resources to that broker.
    """
    if name not in ("", str(broker.replicas.local_id)):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {broker.replicas.local_id} or empty "
            f"string, but received {name}",
        )


def _unknown_type(number: int) -> KafkaError:
    """Return the error for a resource that has no configs here."""
    name = TYPE_NAMES.get(number, "UNKNOWN")
    return KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {name}")


def check_access(
    request: Request, broker: Broker, operation: AclOperation, kind: int, name: str
) -> None:
    """Raise if the client may not do it; configs of brokers are the cluster's."""
    if kind == ConfigResourceType.TOPIC:
        check_topic(request, broker, operation, name)
    elif kind == ConfigResourceType.BROKER and not allowed_on_cluster(
        request, broker, operation
    ):
        raise denied(ResourceType.CLUSTER)


async def replace_configs(
    kind: int,
    name: str,
    wanted: Callable[[], Awaitable[Mapping[str, str]]],
    broker: Broker,
    *,
    validate_only: bool,
) -> None:
    """Give a resource the configs that ``wanted`` returns, or raise.

    It is asked again where others have altered the resource meanwhile, here or, under
    ZooKeeper, at another broker.
    """
    coordinator, done = broker.coordinator, False
    while not done:
        if kind == ConfigResourceType.BROKER:
            # Hosts have to be known to take effect, and a resolver may take its time.
            await _learn_hosts(_altered(await wanted(), name, broker), broker)
        configs = await wanted()
        before = configs_to_alter(kind, name, broker)
        if kind == ConfigResourceType.TOPIC:
            check_topic_configs(configs, broker.config)
        else:
            _altered(configs, name, broker)
        if validate_only:
            return
        if kind == ConfigResourceType.TOPIC:
            done = await coordinator.admin.set_topic_configs(name, configs, before)
        else:
            done = await coordinator.admin.set_broker_configs(name, configs, before)


def configs_to_alter(kind: int, name: str, broker: Broker) -> Mapping[str, str]:
    """Return the configs that were set for a resource that may be altered, or raise."""
    if kind == ConfigResourceType.TOPIC and not name:
        raise KafkaError(
            ErrorCode.invalid_request, "Default topic resources are not allowed."
        )
    return present_configs(kind, name, broker)


def present_configs(kind: int, name: str, broker: Broker) -> Mapping[str, str]:
    """Return the configs that were set for a resource, or raise if there is none."""
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
        return broker.coordinator.admin.broker_configs.get(name, {})
    raise _unknown_type(kind)


def _altered(configs: Mapping[str, str], name: str, broker: Broker) -> BrokerConfig:
    """Return the broker's configuration under these configs, or raise."""
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
    dynamic = broker.coordinator.admin.broker_configs
    try:
        # By themselves, too: one broker's own configs may hide what is set for all.
        broker.alterations.under({name: configs})
        altered = broker.alterations.under({**dynamic, name: configs})
        check_threads(broker.config, altered)
        check_altered_stores(broker.config, altered)
    except ConfigError as error:
        raise _invalid(error) from error
    return altered


async def _learn_hosts(config: BrokerConfig, broker: Broker) -> None:
    try:
        await broker.hosts.learn(config)
    except ConfigError as error:
        raise _invalid(error) from error


def _invalid(error: ConfigError) -> KafkaError:
    """Return what a broker's bad config is answered; of a topic, INVALID_CONFIG."""
    return KafkaError(ErrorCode.invalid_request, str(error))
