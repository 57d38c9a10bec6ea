"""Configs of a resource that override the broker's, and the source of each value.

A config of a topic or of a group is a broker key under another name. It is parsed and
documented as that key, and its default is the broker's value. Values are stored as
text, as written.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from broker.config import BrokerConfig, Key
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError


class ConfigSource(enum.IntEnum):
    """The source of a value, numbered as DescribeConfigs reports it."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """A possible source of a value."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One config as in DescribeConfigs; the first of ``synonyms`` is in effect."""

    key: Key[Any]
    value: str | None
    source: ConfigSource
    synonyms: tuple[Synonym, ...]


# Returns the values set for a broker's key, by name, in order of precedence.
WrittenAs = Callable[[str], Iterable[Synonym]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideKey:
    """A config of a resource: its own key, and the broker's keys of its default.

    ``default`` computes the default if it depends on several keys.
    """

    key: Key[Any]
    broker_keys: tuple[Key[Any], ...] = ()
    default: Callable[[BrokerConfig], Any] | None = None

    def broker_value(self, config: BrokerConfig) -> Any:
        """Return the default, for a resource that does not set the config."""
        if self.default is not None:
            return self.default(config)
        return config[self.broker_keys[0]] if self.broker_keys else self.key.default

    def value(self, configs: Mapping[str, str], config: BrokerConfig) -> Any:
        """Return the value of a resource that has set ``configs``."""
        own = configs.get(self.key.name)
        return self.broker_value(config) if own is None else self.key.read(own)


def same_as_broker(name: str, broker_key: Key[Any]) -> OverrideKey:
    """Return a config that is one of the broker's keys under another name."""
    key = replace(broker_key, name=name)
    return OverrideKey(key=key, broker_keys=(broker_key,))


def read_overrides(
    keys: Mapping[str, OverrideKey], configs: Mapping[str, str], kind: str
) -> dict[str, Any]:
    """Return the values of a resource's configs; raise INVALID_CONFIG."""
    unknown = next((name for name in configs if name not in keys), None)
    if unknown is not None:
        raise KafkaError(
            ErrorCode.invalid_config, f"Unknown {kind} config name: {unknown}"
        )
    try:
        return {name: keys[name].key.read(own) for name, own in configs.items()}
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error


def describe_overrides(
    keys: Mapping[str, OverrideKey],
    source: ConfigSource,
    configs: Mapping[str, str],
    config: BrokerConfig,
    written_as: WrittenAs,
) -> list[DescribedConfig]:
    """Return every config of a resource, in the order of names.

    ``source`` is the source of values set by the resource.
    """
    return [
        _described(override, source, configs, config, written_as)
        for _, override in sorted(keys.items())
    ]


def _described(
    override: OverrideKey,
    source: ConfigSource,
    configs: Mapping[str, str],
    config: BrokerConfig,
    written_as: WrittenAs,
) -> DescribedConfig:
    key = override.key
    effective = written(override.value(configs, config))
    synonyms = []
    if key.name in configs:
        synonyms.append(Synonym(key.name, effective, source))
    synonyms += [
        synonym
        for broker_key in override.broker_keys
        for synonym in written_as(broker_key.name)
    ]
    if override.broker_keys and override.broker_keys[0].default is not None:
        # Only the key of the same unit is listed, and only if its default is not null.
        nearest = override.broker_keys[0]
        default = written(config.default(nearest))
        synonyms.append(Synonym(nearest.name, default, ConfigSource.DEFAULT_CONFIG))
    strongest = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return DescribedConfig(key, effective, strongest, tuple(synonyms))


def written(value: Any) -> str | None:
    """Return a value as Kafka writes it in responses.

    >>> written(True), written(("compact", "delete")), written(None)
    ('true', 'compact,delete', None)
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{name}:{number}" for name, number in value.items())
    if isinstance(value, float):
        return _written_by_java(value)
    return str(value)


def _written_by_java(value: float) -> str:
    """Return a number in the format of Java's ``Double.toString``.

    >>> _written_by_java(0.5), _written_by_java(1e6), _written_by_java(2.5e7)
    ('0.5', '1000000.0', '2.5E7')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    exponent = Decimal(repr(value)).adjusted()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{exponent}"
