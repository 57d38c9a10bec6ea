"""The settings of a producer: Kafka's ``ProducerConfig``.

As in Kafka, idempotence is enabled unless another setting conflicts with it. A conflict
with an explicit ``enable.idempotence``, or a transactional id, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.client.client_config import (
    COMMON,
    REQUEST_TIMEOUT_MS,
    ClientConfig,
    read_settings,
)
from broker.protocol.config_key import (
    INT_MAX,
    boolean,
    integer,
    long,
    optional_text,
    text,
)
from broker.protocol.errors import ConfigError
from broker.protocol.records.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD

CODECS: Final = {
    "none": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}
_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
# Brokers store the last five batches of a producer.
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5

ACKS: Final = text(
    "acks",
    "all",
    "Replicas that must have a batch before it is acknowledged: none, leader, ISR.",
    choices=tuple(_ACKS),
)
ENABLE_IDEMPOTENCE: Final = boolean(
    "enable.idempotence", True, "Number the batches, so that none is written twice."
)
LINGER_MS: Final = long(
    "linger.ms", 5, "Time that a batch that is not full waits for records.", low=0
)
BATCH_SIZE: Final = integer(
    "batch.size", 16_384, "The bytes of records in a batch, before compression.", low=0
)
BUFFER_MEMORY: Final = long(
    "buffer.memory", 33_554_432, "The bytes of all batches not yet answered.", low=0
)
MAX_BLOCK_MS: Final = long(
    "max.block.ms",
    60_000,
    "Time limit of a send's wait for metadata and buffer memory.",
    low=0,
)
MAX_REQUEST_SIZE: Final = integer(
    "max.request.size", 1_048_576, "The bytes of a record, and of a request.", low=0
)
DELIVERY_TIMEOUT_MS: Final = integer(
    "delivery.timeout.ms",
    120_000,
    "The time from send to success or failure, all repetitions included.",
    low=0,
)
RETRIES: Final = integer(
    "retries", INT_MAX, "Number of retries of a batch within its time.", low=0
)
MAX_IN_FLIGHT: Final = integer(
    "max.in.flight.requests.per.connection",
    5,
    "Requests to one broker that wait for their answers.",
    low=1,
)
COMPRESSION_TYPE: Final = text(
    "compression.type", "none", "The codec of batches.", choices=tuple(CODECS)
)

TRANSACTIONAL_ID: Final = optional_text(
    "transactional.id", "The name under which this producer makes transactions."
)
TRANSACTION_TIMEOUT_MS: Final = integer(
    "transaction.timeout.ms",
    60_000,
    "The coordinator aborts a transaction that is open for longer.",
    low=0,
)

KEYS: Final = (
    *COMMON,
    ACKS,
    ENABLE_IDEMPOTENCE,
    LINGER_MS,
    BATCH_SIZE,
    BUFFER_MEMORY,
    MAX_BLOCK_MS,
    MAX_REQUEST_SIZE,
    DELIVERY_TIMEOUT_MS,
    RETRIES,
    MAX_IN_FLIGHT,
    COMPRESSION_TYPE,
    TRANSACTIONAL_ID,
    TRANSACTION_TIMEOUT_MS,
)


def producer_config(settings: Mapping[str, Any]) -> ClientConfig:
    """Check a producer's settings and their combinations; raises `ConfigError`."""
    config = read_settings(KEYS, settings)
    least_ms = config[LINGER_MS] + config[REQUEST_TIMEOUT_MS]
    if config[DELIVERY_TIMEOUT_MS] < least_ms:
        if DELIVERY_TIMEOUT_MS.name not in config.written:
            return producer_config({**settings, DELIVERY_TIMEOUT_MS.name: least_ms})
        raise ConfigError(
            DELIVERY_TIMEOUT_MS.name,
            config[DELIVERY_TIMEOUT_MS],
            f"at least linger.ms + request.timeout.ms, {least_ms}",
        )
    if config[ENABLE_IDEMPOTENCE]:
        contradiction = _against_idempotence(config)
        if contradiction is None:
            return config
        is_wanted = ENABLE_IDEMPOTENCE.name in config.written
        if is_wanted or config[TRANSACTIONAL_ID] is not None:
            raise contradiction
        return producer_config({**settings, ENABLE_IDEMPOTENCE.name: False})
    if config[TRANSACTIONAL_ID] is not None:
        raise ConfigError(ENABLE_IDEMPOTENCE.name, False, "true, with transactional.id")
    return config


def acks_of(config: ClientConfig) -> int:
    """Return ``acks`` as in the protocol: -1, 0 or 1."""
    return _ACKS[config[ACKS]]


def _against_idempotence(config: ClientConfig) -> ConfigError | None:
    for_it = "with enable.idempotence"
    if acks_of(config) != -1:
        return ConfigError(ACKS.name, config[ACKS], f"all, {for_it}")
    if config[RETRIES] == 0:
        return ConfigError(RETRIES.name, 0, f"at least 1, {for_it}")
    if config[MAX_IN_FLIGHT] > IDEMPOTENT_IN_FLIGHT_MAX:
        expected = f"at most {IDEMPOTENT_IN_FLIGHT_MAX}, {for_it}"
        return ConfigError(MAX_IN_FLIGHT.name, config[MAX_IN_FLIGHT], expected)
    return None
