"""The configs of a topic, and the source of each default.

Kafka's ``LogConfig``, ``TopicConfig`` and ``ServerTopicConfigSynonyms``: a topic config
is a broker key under another name, so it is parsed and documented as that key, and its
default is the broker's value. Values of topics are kept as text, as they were written.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker import config as keys
from broker.config import BrokerConfig, Key
from broker.log.segments.log_config import LONG_MAX, LogConfig
from broker.protocol.config_key import long, words
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError

_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


class ConfigSource(enum.IntEnum):
    """The source of a value, numbered as DescribeConfigs reports it."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Synonym(NamedTuple):
    """One of the places that a value could come from, the strongest first."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKey:
    """A topic config: its own key, and the broker's keys that stand behind it.

    ``default`` computes the broker's value where several keys have a say.
    """

    key: Key[Any]
    broker_keys: tuple[Key[Any], ...] = ()
    default: Callable[[BrokerConfig], Any] | None = None

    def broker_value(self, config: BrokerConfig) -> Any:
        """Return the value of a topic without an override."""
        if self.default is not None:
            return self.default(config)
        return config[self.broker_keys[0]] if self.broker_keys else self.key.default


def _same(name: str, broker_key: Key[Any]) -> TopicKey:
    return TopicKey(key=replace(broker_key, name=name), broker_keys=(broker_key,))


def _long(
    name: str,
    broker_keys: tuple[Key[Any], ...],
    default: Callable[[BrokerConfig], int],
    *,
    low: int,
) -> TopicKey:
    key = long(name, LONG_MAX, broker_keys[0].doc, low=low)
    return TopicKey(key=key, broker_keys=broker_keys, default=default)


def _flush_ms(config: BrokerConfig) -> int:
    set_ms = config[keys.LOG_FLUSH_INTERVAL_MS]
    return config[keys.LOG_FLUSH_SCHEDULER_INTERVAL_MS] if set_ms is None else set_ms


def _throttled(name: str, what: str) -> TopicKey:
    """Return Kafka's ``ThrottledReplicaListValidator`` as a key."""
    doc = f"Replicas whose {what} is throttled: * or PARTITION:BROKER,..."
    key = words(name, (), doc)

    def parse(written: str) -> tuple[str, ...]:
        found = key.parse(written)
        if found != ("*",) and not all(_REPLICA.fullmatch(it) for it in found if it):
            raise ValueError("* or a list of PARTITION:BROKER")
        return found

    return TopicKey(key=replace(key, parse=parse))


_TOPIC_KEYS: Final = (
    _same("cleanup.policy", keys.LOG_CLEANUP_POLICY),
    _same("compression.gzip.level", keys.COMPRESSION_GZIP_LEVEL),
    _same("compression.lz4.level", keys.COMPRESSION_LZ4_LEVEL),
    _same("compression.type", keys.COMPRESSION_TYPE),
    _same("compression.zstd.level", keys.COMPRESSION_ZSTD_LEVEL),
    _same("delete.retention.ms", keys.LOG_CLEANER_DELETE_RETENTION_MS),
    _same("file.delete.delay.ms", keys.LOG_SEGMENT_DELETE_DELAY_MS),
    _same("flush.messages", keys.LOG_FLUSH_INTERVAL_MESSAGES),
    _long(
        "flush.ms",
        (keys.LOG_FLUSH_INTERVAL_MS, keys.LOG_FLUSH_SCHEDULER_INTERVAL_MS),
        _flush_ms,
        low=0,
    ),
    _throttled("follower.replication.throttled.replicas", "fetching"),
    _same("index.interval.bytes", keys.LOG_INDEX_INTERVAL_BYTES),
    _throttled("leader.replication.throttled.replicas", "sending"),
    _same("max.compaction.lag.ms", keys.LOG_CLEANER_MAX_COMPACTION_LAG_MS),
    _same("max.message.bytes", keys.MESSAGE_MAX_BYTES),
    _same("message.downconversion.enable", keys.LOG_MESSAGE_DOWNCONVERSION_ENABLE),
    _same("message.timestamp.after.max.ms", keys.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS),
    _same("message.timestamp.before.max.ms", keys.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS),
    _same(
        "message.timestamp.difference.max.ms",
        keys.LOG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS,
    ),
    _same("message.timestamp.type", keys.LOG_MESSAGE_TIMESTAMP_TYPE),
    _same("min.cleanable.dirty.ratio", keys.LOG_CLEANER_MIN_CLEANABLE_RATIO),
    _same("min.compaction.lag.ms", keys.LOG_CLEANER_MIN_COMPACTION_LAG_MS),
    _same("min.insync.replicas", keys.MIN_INSYNC_REPLICAS),
    _same("preallocate", keys.LOG_PREALLOCATE),
    _same("retention.bytes", keys.LOG_RETENTION_BYTES),
    _long(
        "retention.ms",
        (
            keys.LOG_RETENTION_MS,
            keys.LOG_RETENTION_MINUTES,
            keys.LOG_RETENTION_HOURS,
        ),
        lambda config: config.retention_ms,
        low=-1,
    ),
    _same("segment.bytes", keys.LOG_SEGMENT_BYTES),
    _same("segment.index.bytes", keys.LOG_INDEX_SIZE_MAX_BYTES),
    _long(
        "segment.jitter.ms",
        (keys.LOG_ROLL_JITTER_MS, keys.LOG_ROLL_JITTER_HOURS),
        lambda config: config.roll_jitter_ms,
        low=0,
    ),
    _long(
        "segment.ms",
        (keys.LOG_ROLL_MS, keys.LOG_ROLL_HOURS),
        lambda config: config.roll_ms,
        low=1,
    ),
    _same("unclean.leader.election.enable", keys.UNCLEAN_LEADER_ELECTION_ENABLE),
)
TOPIC_KEYS: Final[Mapping[str, TopicKey]] = MappingProxyType(
    {topic_key.key.name: topic_key for topic_key in _TOPIC_KEYS}
)


class DescribedConfig(NamedTuple):
    """One config as DescribeConfigs shows it; ``synonyms`` begin with the effective."""

    key: Key[Any]
    value: str | None
    source: ConfigSource
    synonyms: tuple[Synonym, ...]


def check_topic_configs(configs: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise INVALID_CONFIG unless a topic can have these overrides."""
    for name, written in configs.items():
        topic_key = TOPIC_KEYS.get(name)
        if topic_key is None:
            raise _invalid(f"Unknown topic config name: {name}")
        try:
            topic_key.key.read(written)
        except ConfigError as error:
            raise _invalid(str(error)) from error
    shortest = topic_value("min.compaction.lag.ms", configs, config)
    longest = topic_value("max.compaction.lag.ms", configs, config)
    if shortest > longest:
        raise _invalid(
            f"min.compaction.lag.ms {shortest} is above max.compaction.lag.ms {longest}"
        )


def topic_value(name: str, configs: Mapping[str, str], config: BrokerConfig) -> Any:
    """Return the effective value of one topic config."""
    topic_key = TOPIC_KEYS[name]
    written = configs.get(name)
    if written is None:
        return topic_key.broker_value(config)
    return topic_key.key.read(written)


def log_config(configs: Mapping[str, str], config: BrokerConfig) -> LogConfig:
    """Return the settings of a topic's logs."""
    values = {
        field: topic_value(name, configs, config) for name, field in _LOG_FIELDS.items()
    }
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    # The older key bounds both directions.
    difference_ms = topic_value("message.timestamp.difference.max.ms", configs, config)
    for field in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
        values[field] = min(values[field], difference_ms)
    if "compact" in values["cleanup_policy"]:
        # Only what has ended is compacted.
        values["segment_ms"] = min(
            values["segment_ms"], values["max_compaction_lag_ms"]
        )
    return LogConfig(
        producer_id_expiration_ms=config[keys.PRODUCER_ID_EXPIRATION_MS], **values
    )


# The values set for a broker's own key, the strongest first: (name) -> synonyms.
WrittenAs = Callable[[str], Iterable[Synonym]]


def describe_topic_configs(
    configs: Mapping[str, str], config: BrokerConfig, written_as: WrittenAs
) -> list[DescribedConfig]:
    """Return every config of a topic, in the order of names."""
    return [
        _described(topic_key, configs, config, written_as)
        for _, topic_key in sorted(TOPIC_KEYS.items())
    ]


def _described(
    topic_key: TopicKey,
    configs: Mapping[str, str],
    config: BrokerConfig,
    written_as: WrittenAs,
) -> DescribedConfig:
    key = topic_key.key
    synonyms = []
    if key.name in configs:
        synonyms.append(
            Synonym(key.name, configs[key.name], ConfigSource.DYNAMIC_TOPIC_CONFIG)
        )
    synonyms += [
        synonym
        for broker_key in topic_key.broker_keys
        for synonym in written_as(broker_key.name)
    ]
    if topic_key.broker_keys and topic_key.broker_keys[0].default is not None:
        # The key of the same unit only; one whose default is null is no place to look.
        nearest = topic_key.broker_keys[0]
        default = written(config.default(nearest))
        synonyms.append(Synonym(nearest.name, default, ConfigSource.DEFAULT_CONFIG))
    effective = written(topic_value(key.name, configs, config))
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return DescribedConfig(key, effective, source, tuple(synonyms))


def written(value: Any) -> str | None:
    """Return a value as Kafka writes it in answers.

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
    """Return a number as ``Double.toString`` writes it.

    >>> _written_by_java(0.5), _written_by_java(1e6), _written_by_java(2.5e7)
    ('0.5', '1000000.0', '2.5E7')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    exponent = Decimal(repr(value)).adjusted()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{exponent}"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, message)


_LOG_FIELDS: Final = {
    name: name.replace(".", "_")
    for name in TOPIC_KEYS
    if name.replace(".", "_") in LogConfig.__dataclass_fields__
}
