"""The settings of a consumer: Kafka's ``ConsumerConfig``.

Left out: interceptors, racks, and ``check.crcs``, since checksums are always checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.client.client_config import COMMON, ClientConfig, read_settings
from broker.protocol.config_key import (
    Key,
    boolean,
    integer,
    optional_text,
    text,
    words,
)
from broker.protocol.errors import ConfigError

GROUP_ID: Final = optional_text("group.id", "The group to join and to commit for.")
GROUP_PROTOCOL: Final = text(
    "group.protocol",
    "classic",
    "Whether members divide partitions (classic), or the broker (consumer, KIP-848).",
    choices=("classic", "consumer"),
)
GROUP_REMOTE_ASSIGNOR: Final = optional_text(
    "group.remote.assignor", "The broker's assignor, with group.protocol=consumer."
)
GROUP_INSTANCE_ID: Final = optional_text(
    "group.instance.id", "The name of a static member (KIP-345)."
)
AUTO_OFFSET_RESET: Final = text(
    "auto.offset.reset",
    "latest",
    "Start without a committed offset, or beyond the log's ends.",
    choices=("earliest", "latest", "none"),
)
ENABLE_AUTO_COMMIT: Final = boolean(
    "enable.auto.commit", True, "Commit the records that earlier polls have returned."
)
AUTO_COMMIT_INTERVAL_MS: Final = integer(
    "auto.commit.interval.ms", 5_000, "Period of commits of positions.", low=0
)
FETCH_MIN_BYTES: Final = integer(
    "fetch.min.bytes", 1, "An answer waits for this many bytes.", low=0
)
FETCH_MAX_WAIT_MS: Final = integer(
    "fetch.max.wait.ms", 500, "An answer waits no longer than this.", low=0
)
FETCH_MAX_BYTES: Final = integer(
    "fetch.max.bytes", 52_428_800, "The bytes of one answer.", low=0
)
MAX_PARTITION_FETCH_BYTES: Final = integer(
    "max.partition.fetch.bytes",
    1_048_576,
    "The bytes of one partition in an answer, and its bound on prefetching.",
    low=0,
)
MAX_POLL_RECORDS: Final = integer(
    "max.poll.records", 500, "The records that one poll returns at most.", low=1
)
MAX_POLL_INTERVAL_MS: Final = integer(
    "max.poll.interval.ms",
    300_000,
    "A member that does not poll for longer leaves the group.",
    low=1,
)
SESSION_TIMEOUT_MS: Final = integer(
    "session.timeout.ms", 45_000, "A member silent for longer is dead.", low=1
)
HEARTBEAT_INTERVAL_MS: Final = integer(
    "heartbeat.interval.ms", 3_000, "Period of a member's heartbeats.", low=1
)
PARTITION_ASSIGNMENT_STRATEGY: Final = words(
    "partition.assignment.strategy",
    ("range", "cooperative-sticky"),
    "Assignors that a leader may use, the preferred one first.",
    choices=("range", "roundrobin", "cooperative-sticky"),
)
ISOLATION_LEVEL: Final = text(
    "isolation.level",
    "read_uncommitted",
    "Whether records of aborted transactions are read.",
    choices=("read_uncommitted", "read_committed"),
)
ALLOW_AUTO_CREATE_TOPICS: Final = boolean(
    "allow.auto.create.topics", True, "Allow the broker to create missing topics."
)
DEFAULT_API_TIMEOUT_MS: Final = integer(
    "default.api.timeout.ms",
    60_000,
    "Time limit of calls that need a broker.",
    low=0,
)

KEYS: Final = (
    *COMMON,
    GROUP_ID,
    GROUP_PROTOCOL,
    GROUP_REMOTE_ASSIGNOR,
    GROUP_INSTANCE_ID,
    AUTO_OFFSET_RESET,
    ENABLE_AUTO_COMMIT,
    AUTO_COMMIT_INTERVAL_MS,
    FETCH_MIN_BYTES,
    FETCH_MAX_WAIT_MS,
    FETCH_MAX_BYTES,
    MAX_PARTITION_FETCH_BYTES,
    MAX_POLL_RECORDS,
    MAX_POLL_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    HEARTBEAT_INTERVAL_MS,
    PARTITION_ASSIGNMENT_STRATEGY,
    ISOLATION_LEVEL,
    ALLOW_AUTO_CREATE_TOPICS,
    DEFAULT_API_TIMEOUT_MS,
)
# Settings of the classic protocol; in the consumer protocol the broker has them.
_CLASSIC_KEYS: Final[tuple[Key[Any], ...]] = (
    PARTITION_ASSIGNMENT_STRATEGY,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
)


def consumer_config(settings: Mapping[str, Any]) -> ClientConfig:
    """Check a consumer's settings and their combinations; raises `ConfigError`."""
    config = read_settings(KEYS, settings)
    if config[HEARTBEAT_INTERVAL_MS] >= config[SESSION_TIMEOUT_MS]:
        raise ConfigError(
            HEARTBEAT_INTERVAL_MS.name,
            config[HEARTBEAT_INTERVAL_MS],
            f"less than session.timeout.ms, {config[SESSION_TIMEOUT_MS]}",
        )
    _check_group_protocol(config)
    strategies = config[PARTITION_ASSIGNMENT_STRATEGY]
    if not strategies or len(set(strategies)) < len(strategies):
        expected = "at least one strategy, each once"
        raise ConfigError(PARTITION_ASSIGNMENT_STRATEGY.name, strategies, expected)
    if config[GROUP_ID] is None:
        for name, value in (
            (ENABLE_AUTO_COMMIT.name, config[ENABLE_AUTO_COMMIT]),
            (GROUP_INSTANCE_ID.name, config[GROUP_INSTANCE_ID]),
        ):
            if name in config.written and value:
                raise ConfigError(name, value, "a group.id as well")
        if config[ENABLE_AUTO_COMMIT]:
            return consumer_config({**settings, ENABLE_AUTO_COMMIT.name: False})
    return config


def _check_group_protocol(config: ClientConfig) -> None:
    """Refuse settings of the other group protocol, as Kafka does."""
    protocol = config[GROUP_PROTOCOL]
    others = _CLASSIC_KEYS if protocol == "consumer" else (GROUP_REMOTE_ASSIGNOR,)
    for key in others:
        if key.name in config.written:
            expected = f"nothing with {GROUP_PROTOCOL.name}={protocol}"
            raise ConfigError(key.name, config[key], expected)
