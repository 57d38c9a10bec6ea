"""Client settings: Kafka's names and defaults, and refusal of invalid values."""

from __future__ import annotations

from typing import Any

import pytest

from broker.client.client_config import parse_bootstrap
from broker.client.consumer.consumer_config import (
    ENABLE_AUTO_COMMIT,
    PARTITION_ASSIGNMENT_STRATEGY,
    consumer_config,
)
from broker.client.consumer.consumer_config import KEYS as CONSUMER_KEYS
from broker.client.producer.producer_config import (
    BATCH_SIZE,
    DELIVERY_TIMEOUT_MS,
    ENABLE_IDEMPOTENCE,
    LINGER_MS,
    producer_config,
)
from broker.client.producer.producer_config import KEYS as PRODUCER_KEYS
from broker.protocol.errors import ConfigError

# Defaults in the documentation of Apache Kafka 4.1.
KAFKA_DEFAULTS = {
    "acks": "all",
    "allow.auto.create.topics": True,
    "auto.commit.interval.ms": 5_000,
    "auto.offset.reset": "latest",
    "batch.size": 16_384,
    "buffer.memory": 33_554_432,
    "client.id": "",
    "compression.type": "none",
    "default.api.timeout.ms": 60_000,
    "delivery.timeout.ms": 120_000,
    "enable.auto.commit": True,
    "enable.idempotence": True,
    "fetch.max.bytes": 52_428_800,
    "fetch.max.wait.ms": 500,
    "fetch.min.bytes": 1,
    "group.id": None,
    "group.protocol": "classic",
    "group.remote.assignor": None,
    "group.instance.id": None,
    "heartbeat.interval.ms": 3_000,
    "isolation.level": "read_uncommitted",
    "linger.ms": 5,
    "max.block.ms": 60_000,
    "max.in.flight.requests.per.connection": 5,
    "max.partition.fetch.bytes": 1_048_576,
    "max.poll.interval.ms": 300_000,
    "max.poll.records": 500,
    "max.request.size": 1_048_576,
    "metadata.max.age.ms": 300_000,
    "partition.assignment.strategy": ("range", "cooperative-sticky"),
    "reconnect.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30_000,
    "retries": 2_147_483_647,
    "retry.backoff.max.ms": 1_000,
    "retry.backoff.ms": 100,
    "sasl.jaas.config": None,
    "sasl.mechanism": "GSSAPI",
    "sasl.oauthbearer.token.endpoint.url": None,
    "security.protocol": "PLAINTEXT",
    "session.timeout.ms": 45_000,
    "socket.connection.setup.timeout.ms": 10_000,
    # Kafka's default is null, which is equivalent.
    "ssl.cipher.suites": (),
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.key.password": None,
    "ssl.keystore.certificate.chain": None,
    "ssl.keystore.key": None,
    "ssl.keystore.location": None,
    "ssl.keystore.password": None,
    "ssl.keystore.type": "JKS",
    "ssl.truststore.certificates": None,
    "ssl.truststore.location": None,
    "ssl.truststore.password": None,
    "ssl.truststore.type": "JKS",
    "transaction.timeout.ms": 60_000,
    "transactional.id": None,
}


def test_defaults_are_kafkas() -> None:
    ours = {key.name: key.default for key in (*PRODUCER_KEYS, *CONSUMER_KEYS)}
    assert ours == KAFKA_DEFAULTS


def test_settings_are_written_with_underscores_or_points_as_python_or_as_text() -> None:
    config = producer_config({"linger_ms": 7, "batch.size": "100"})
    assert (config[LINGER_MS], config[BATCH_SIZE]) == (7, 100)
    read = consumer_config(
        {
            "group_id": "g",
            "enable_auto_commit": False,
            "partition_assignment_strategy": ["roundrobin", "range"],
        }
    )
    assert read[ENABLE_AUTO_COMMIT] is False
    assert read[PARTITION_ASSIGNMENT_STRATEGY] == ("roundrobin", "range")


@pytest.mark.parametrize(
    ("settings", "key", "expected"),
    [
        ({"linger": 5}, "linger", "the nearest is linger.ms"),
        ({"interceptor_classes": "x"}, "interceptor.classes", "a key of this client"),
        ({"transactional_id": "t", "acks": 1}, "acks", "all"),
        (
            {"transactional_id": "t", "enable_idempotence": False},
            "enable.idempotence",
            "true, with transactional.id",
        ),
        ({"linger_ms": "soon"}, "linger.ms", "a whole number"),
        ({"acks": "2"}, "acks", "one of all, -1, 0, 1"),
        ({"compression_type": "rar"}, "compression.type", "one of none, gzip"),
        ({"delivery_timeout_ms": 10}, "delivery.timeout.ms", "at least linger.ms"),
        ({"enable_idempotence": True, "acks": 1}, "acks", "all"),
        ({"enable_idempotence": True, "retries": 0}, "retries", "at least 1"),
        (
            {
                "enable_idempotence": True,
                "max_in_flight_requests_per_connection": 6,
            },
            "max.in.flight.requests.per.connection",
            "at most 5",
        ),
    ],
)
def test_a_producer_refuses(settings: dict[str, Any], key: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as refused:
        producer_config(settings)
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("settings", "key", "expected"),
    [
        ({"auto_offset_reset": "0"}, "auto.offset.reset", "earliest, latest, none"),
        (
            {"session_timeout_ms": 3_000},
            "heartbeat.interval.ms",
            "less than session.timeout.ms, 3000",
        ),
        ({"enable_auto_commit": True}, "enable.auto.commit", "a group.id"),
        ({"group_instance_id": "a"}, "group.instance.id", "a group.id"),
        (
            {"partition_assignment_strategy": "range,range"},
            "partition.assignment.strategy",
            "each once",
        ),
    ],
)
def test_a_consumer_refuses(settings: dict[str, Any], key: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as refused:
        consumer_config(settings)
    assert refused.value.key == key


@pytest.mark.parametrize("setting", [{"acks": 1}, {"retries": 0}])
def test_idempotence_that_nobody_asked_for_gives_way(setting: dict[str, Any]) -> None:
    assert producer_config(setting)[ENABLE_IDEMPOTENCE] is False


def test_a_longer_linger_takes_the_delivery_timeout_along() -> None:
    config = producer_config({"linger_ms": 100_000})
    assert config[DELIVERY_TIMEOUT_MS] == 130_000


@pytest.mark.parametrize("servers", ["", "localhost", "a:b", ":9092", "a:1,,b:2"])
def test_bootstrap_servers_have_a_host_and_a_port(servers: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        parse_bootstrap(servers)
