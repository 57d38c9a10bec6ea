"""The configs of a consumer group: the supported part of Kafka's ``GroupConfig``.

A new value outside the broker's bounds is refused. A stored value outside them (the
bounds may have changed) is replaced by the nearest bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.cluster.config_overrides import (
    OverrideKey,
    read_overrides,
    same_as_broker,
)
from broker.config import (
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    BrokerConfig,
    Key,
)
from broker.config.key_bounds import CONSUMER_BOUNDS
from broker.groups.state.group_settings import ConsumerSettings
from broker.protocol.errors import ErrorCode, KafkaError

_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_ASSIGNMENT: Final = "consumer.assignment.interval.ms"
_BROKER_KEYS: Final[Mapping[str, Key[int]]] = MappingProxyType(
    {
        _SESSION: GROUP_CONSUMER_SESSION_TIMEOUT_MS,
        _HEARTBEAT: GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
        _ASSIGNMENT: GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    }
)
GROUP_KEYS: Final[Mapping[str, OverrideKey]] = MappingProxyType(
    {name: same_as_broker(name, key) for name, key in _BROKER_KEYS.items()}
)


def check_group_configs(configs: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise INVALID_CONFIG for invalid configs of a group."""
    for name, value in read_overrides(GROUP_KEYS, configs, "group").items():
        low, high = _bounds(name, config)
        if not low <= value <= high:
            raise KafkaError(
                ErrorCode.invalid_config,
                f"{name} must be in the range {low} to {high} inclusive.",
            )
    if _SESSION in configs or _HEARTBEAT in configs:
        session_ms = GROUP_KEYS[_SESSION].value(configs, config)
        if session_ms <= GROUP_KEYS[_HEARTBEAT].value(configs, config):
            raise KafkaError(
                ErrorCode.invalid_config,
                f"{_SESSION} must be greater than {_HEARTBEAT}",
            )


def consumer_settings(
    configs: Mapping[str, str], config: BrokerConfig
) -> ConsumerSettings:
    """Return the settings of a group that has set ``configs``."""
    session_ms, heartbeat_ms, assignment_ms = (
        _within(GROUP_KEYS[name].value(configs, config), *_bounds(name, config))
        for name in (_SESSION, _HEARTBEAT, _ASSIGNMENT)
    )
    return ConsumerSettings(
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        assignment_interval_ms=assignment_ms,
    )


def _bounds(name: str, config: BrokerConfig) -> tuple[int, int]:
    bounds = CONSUMER_BOUNDS[_BROKER_KEYS[name]]
    return config[bounds.low], config[bounds.high]


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
