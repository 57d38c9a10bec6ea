"""Bounds between keys, and upper bounds of counts.

Bounds between keys are those of Kafka's ``KafkaConfig.validateValues``. Kafka has no
upper bounds of counts: a broker would run out of memory or descriptors at first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from broker.config.admission_keys import (
    DOORKEEPER_ADMISSION,
    DOORKEEPER_ADMISSION_BURST_REQUESTS,
    DOORKEEPER_ADMISSION_RATES_PER_S,
    DOORKEEPER_ADMISSION_RESERVED,
)
from broker.config.cluster_keys import (
    CONTROLLER_SOCKET_TIMEOUT_MS,
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_LAG_TIME_MAX_MS,
    REPLICA_SOCKET_TIMEOUT_MS,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
)
from broker.config.network_keys import (
    NUM_NETWORK_THREADS,
    QUEUED_MAX_REQUEST_BYTES,
    QUEUED_MAX_REQUESTS,
    SOCKET_REQUEST_MAX_BYTES,
)
from broker.config.storage_keys import (
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_THREADS,
    NUM_PARTITIONS,
)
from broker.protocol.config_key import Key
from broker.protocol.errors import ConfigError

T = TypeVar("T")

# Per CreateTopics request: Kafka's bound (KIP-599's MAX_PARTITIONS_PER_BATCH).
PARTITIONS_MAX: Final = 10_000
# Per listener; each processor has two descriptors.
PROCESSORS_MAX: Final = 1000
_MIB: Final = 1 << 20


class Bounds(NamedTuple):
    """The keys that hold the minimum and the maximum of another key."""

    low: Key[int]
    high: Key[int]


# Bounds of the broker's own values, and of values set for a single group.
CONSUMER_BOUNDS: Final[Mapping[Key[int], Bounds]] = MappingProxyType(
    {
        GROUP_CONSUMER_SESSION_TIMEOUT_MS: Bounds(
            GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS
        ),
        GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Bounds(
            GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
            GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        ),
        GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS: Bounds(
            GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
            GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
        ),
    }
)


class _Values:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: Key[T]) -> T:
        return cast(T, self._values[key.name])


def check_bounds(
    values: Mapping[str, Any], listener_values: Mapping[tuple[str, str], Any]
) -> None:
    """Raise `ConfigError` for values that are valid alone, but not together.

    ``values`` are by key, ``listener_values`` by listener and key.
    """
    config = _Values(values)
    _check_cleaner(config)
    _check_counts(config, listener_values)
    _check_memory(config)
    _check_time_outs(config)
    _check_consumer_groups(config)
    _check_admission(config)


def _check_cleaner(config: _Values) -> None:
    """Require more than 1 MiB of the cleaner's buffer for each of its threads."""
    size, threads = config[LOG_CLEANER_DEDUPE_BUFFER_SIZE], config[LOG_CLEANER_THREADS]
    if threads and size // threads <= _MIB:
        expected = f"more than {_MIB} for each of log.cleaner.threads, {threads}"
        raise ConfigError(LOG_CLEANER_DEDUPE_BUFFER_SIZE.name, size, expected)


def _check_counts(
    config: _Values, listener_values: Mapping[tuple[str, str], Any]
) -> None:
    for partitions in (
        NUM_PARTITIONS,
        OFFSETS_TOPIC_NUM_PARTITIONS,
        TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    ):
        _check_at_most(partitions.name, config[partitions], PARTITIONS_MAX)
    processors = NUM_NETWORK_THREADS
    _check_at_most(processors.name, config[processors], PROCESSORS_MAX)
    for (listener, name), count in listener_values.items():
        if name == processors.name:
            name = f"listener.name.{listener.lower()}.{name}"
            _check_at_most(name, count, PROCESSORS_MAX)


def _check_at_most(name: str, found: int, most: int) -> None:
    if found > most:
        raise ConfigError(name, found, f"at most {most}")


def _check_memory(config: _Values) -> None:
    """Require memory for the largest request, where that memory is bounded."""
    bound = config[QUEUED_MAX_REQUEST_BYTES]
    largest = config[SOCKET_REQUEST_MAX_BYTES]
    if 0 < bound < largest:
        expected = f"at least {SOCKET_REQUEST_MAX_BYTES.name}, {largest}"
        raise ConfigError(QUEUED_MAX_REQUEST_BYTES.name, bound, expected)


def _check_time_outs(config: _Values) -> None:
    """Refuse waits of fetches beyond the socket time-out or the allowed lag.

    Otherwise requests would time out, or idle followers would leave the ISR.
    """
    wait_ms = config[REPLICA_FETCH_WAIT_MAX_MS]
    for key in (REPLICA_SOCKET_TIMEOUT_MS, REPLICA_LAG_TIME_MAX_MS):
        if wait_ms > config[key]:
            expected = f"at most {key.name}, {config[key]}"
            raise ConfigError(REPLICA_FETCH_WAIT_MAX_MS.name, wait_ms, expected)
    for key in (REPLICA_SOCKET_TIMEOUT_MS, CONTROLLER_SOCKET_TIMEOUT_MS):
        if config[key] < 0:
            raise ConfigError(key.name, config[key], "0 or more")


def _check_consumer_groups(config: _Values) -> None:
    """Refuse values of consumer groups beyond their bounds."""
    for key, (low, high) in CONSUMER_BOUNDS.items():
        if config[low] > config[high]:
            expected = f"at least {low.name}, {config[low]}"
            raise ConfigError(high.name, config[high], expected)
        if not config[low] <= config[key] <= config[high]:
            expected = f"from {low.name}, {config[low]}, to {high.name}, {config[high]}"
            raise ConfigError(key.name, config[key], expected)
    heartbeat_ms = config[GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS]
    session_ms = config[GROUP_CONSUMER_SESSION_TIMEOUT_MS]
    if heartbeat_ms >= session_ms:
        expected = f"less than {GROUP_CONSUMER_SESSION_TIMEOUT_MS.name}, {session_ms}"
        name = GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS.name
        raise ConfigError(name, heartbeat_ms, expected)


def _check_admission(config: _Values) -> None:
    reserved, bound = config[DOORKEEPER_ADMISSION_RESERVED], config[QUEUED_MAX_REQUESTS]
    if config[DOORKEEPER_ADMISSION] == "reserve" and reserved >= bound:
        expected = f"fewer than queued.max.requests, {bound}"
        raise ConfigError(DOORKEEPER_ADMISSION_RESERVED.name, reserved, expected)
    rates = config[DOORKEEPER_ADMISSION_RATES_PER_S]
    if config[DOORKEEPER_ADMISSION] == "token-bucket" and not rates:
        name = DOORKEEPER_ADMISSION_RATES_PER_S.name
        raise ConfigError(name, "", "a rate of some class for token-bucket")
    burst = config[DOORKEEPER_ADMISSION_BURST_REQUESTS]
    if not burst.keys() <= rates.keys():
        name = DOORKEEPER_ADMISSION_BURST_REQUESTS.name
        expected = f"classes of {DOORKEEPER_ADMISSION_RATES_PER_S.name}"
        raise ConfigError(name, ",".join(burst), expected)
