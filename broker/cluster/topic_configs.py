"""The configs of a topic: Kafka's ``LogConfig`` and ``TopicConfig``.

The broker's keys of their defaults are those of Kafka's ``ServerTopicConfigSynonyms``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from broker import config as keys
from broker.cluster.config_overrides import (
    ConfigSource,
    DescribedConfig,
    OverrideKey,
    WrittenAs,
    describe_overrides,
    read_overrides,
)
from broker.cluster.config_overrides import same_as_broker as _same
from broker.config import BrokerConfig, Key
from broker.log.segments.log_config import LONG_MAX, LogConfig
from broker.protocol.config_key import long, words
from broker.protocol.errors import ErrorCode, KafkaError

_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


def _long(
    name: str,
    broker_keys: tuple[Key[Any], ...],
    default: Callable[[BrokerConfig], int],
    *,
    low: int,
) -> OverrideKey:
    key = long(name, LONG_MAX, broker_keys[0].doc, low=low)
    return OverrideKey(key=key, broker_keys=broker_keys, default=default)


def _flush_ms(config: BrokerConfig) -> int:
    set_ms = config[keys.LOG_FLUSH_INTERVAL_MS]
    return config[keys.LOG_FLUSH_SCHEDULER_INTERVAL_MS] if set_ms is None else set_ms


def _throttled(name: str, what: str) -> OverrideKey:
    """Return Kafka's ``ThrottledReplicaListValidator`` as a key."""
    doc = f"Replicas whose {what} is throttled: * or PARTITION:BROKER,..."
    key = words(name, (), doc)

    def parse(written: str) -> tuple[str, ...]:
        found = key.parse(written)
        if found != ("*",) and not all(_REPLICA.fullmatch(it) for it in found if it):
            raise ValueError("* or a list of PARTITION:BROKER")
        return found

    return OverrideKey(key=replace(key, parse=parse))


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
TOPIC_KEYS: Final[Mapping[str, OverrideKey]] = MappingProxyType(
    {topic_key.key.name: topic_key for topic_key in _TOPIC_KEYS}
)


def check_topic_configs(configs: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise INVALID_CONFIG for invalid configs of a topic."""
    read_overrides(TOPIC_KEYS, configs, "topic")
    shortest = topic_value("min.compaction.lag.ms", configs, config)
    longest = topic_value("max.compaction.lag.ms", configs, config)
    if shortest > longest:
        raise _invalid(
            f"min.compaction.lag.ms {shortest} is above max.compaction.lag.ms {longest}"
        )


def topic_value(name: str, configs: Mapping[str, str], config: BrokerConfig) -> Any:
    """Return the effective value of one topic config."""
    return TOPIC_KEYS[name].value(configs, config)


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
        # Only closed segments are compacted.
        values["segment_ms"] = min(
            values["segment_ms"], values["max_compaction_lag_ms"]
        )
    return LogConfig(
        producer_id_expiration_ms=config[keys.PRODUCER_ID_EXPIRATION_MS], **values
    )


def describe_topic_configs(
    configs: Mapping[str, str], config: BrokerConfig, written_as: WrittenAs
) -> list[DescribedConfig]:
    """Return every config of a topic, in the order of names."""
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return describe_overrides(TOPIC_KEYS, source, configs, config, written_as)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, message)


_LOG_FIELDS: Final = {
    name: name.replace(".", "_")
    for name in TOPIC_KEYS
    if name.replace(".", "_") in LogConfig.__dataclass_fields__
}
