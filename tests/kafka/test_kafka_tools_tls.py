"""Kafka's own tools, 3.9 and 4.4, over mutual TLS, with stores in both formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from doorkeeper.testing import broker
from tests.certificates import leaf, pem, pkcs12_key, pkcs12_trust
from tests.kafka.java_tools import KafkaPrograms

pytestmark = pytest.mark.kafka

CONFIG = "command-config"
PASSWORD = "open sesame"


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_console_producer_and_consumer(
    protocol: str, programs: KafkaPrograms, tmp_path: Path
) -> None:
    (tmp_path / "broker.p12").write_bytes(pkcs12_key(leaf(), PASSWORD))
    (tmp_path / "trust.p12").write_bytes(pkcs12_trust(PASSWORD))
    alice = leaf("client@tests", common_name="Alice")
    (tmp_path / "alice.pem").write_text(pem(alice))
    trust = {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": tmp_path / "trust.p12",
        "ssl.truststore.password": PASSWORD,
    }
    listener = {
        "listener.security.protocol.map": "PLAINTEXT:SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": tmp_path / "broker.p12",
        "ssl.keystore.password": PASSWORD,
        "ssl.client.auth": "required",
        "ssl.enabled.protocols": protocol,
        **trust,
    }
    client = tmp_path / "client.properties"
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": tmp_path / "alice.pem",
        **trust,
    }
    client.write_text("".join(f"{key}={settings[key]}\n" for key in settings))
    lines = [f"line {number} äöü" for number in range(100)]
    with broker(config=listener) as running:
        running.create_topic("secured")
        is_old = programs.version < "4"
        # Kafka 4.4 warns about the former names.
        names = ("producer.config", "consumer.config") if is_old else 2 * (CONFIG,)
        for_producer, for_consumer = ((f"--{name}", str(client)) for name in names)
        where = ("--bootstrap-server", running.bootstrap_servers, "--topic", "secured")
        programs.succeed(
            *("kafka-console-producer", *where, *for_producer),
            stdin="".join(f"{line}\n" for line in lines),
        )
        told = programs.succeed(
            *("kafka-console-consumer", *where, *for_consumer),
            *("--from-beginning", "--max-messages", "100", "--timeout-ms", "20000"),
        )
    assert told.lines == lines
