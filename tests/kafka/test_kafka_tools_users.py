"""Users and quotas with Kafka's own tools."""

from __future__ import annotations

import pytest

from tests.kafka.conftest import Tools

pytestmark = pytest.mark.kafka


def test_kafka_configs_alters_users(tools: Tools) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    secret = "SCRAM-SHA-256=[iterations=8192,password=one],SCRAM-SHA-512=[password=two]"
    done = tools("kafka-configs", "--alter", *user, "--add-config", secret)
    assert "Completed updating config for user alice." in done.lines
    few = "SCRAM-SHA-256=[iterations=100,password=one]"
    refused = tools.run("kafka-configs", "--alter", *user, "--add-config", few)
    assert refused.status == 1
    assert "4096" in refused.out + refused.err
    dropped = tools(
        "kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-512"
    )
    assert "Completed updating config for user alice." in dropped.lines
    again = tools.run(
        "kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-512"
    )
    assert again.status == 1
    assert "does not exist" in again.out + again.err


def test_kafka_configs_alters_quotas(tools: Tools) -> None:
    user = ("--entity-type", "users", "--entity-name", "quota/user")
    client = ("--entity-type", "clients", "--entity-default")
    rates = "producer_byte_rate=1024,request_percentage=12.5"
    tools("kafka-configs", "--alter", *user, "--add-config", rates)
    tools("kafka-configs", "--alter", *user, *client, "--add-config", rates)
    found = tools("kafka-configs", "--describe", *user).out
    assert "Quota configs for user-principal 'quota/user' are" in found
    assert "producer_byte_rate=1024.0" in found
    assert "request_percentage=12.5" in found
    tools("kafka-configs", "--alter", *user, "--delete-config", "producer_byte_rate")
    found = tools("kafka-configs", "--describe", *user).out
    assert "producer_byte_rate" not in found
    both = tools("kafka-configs", "--describe", *user, *client).out
    assert "the default client-id are" in both
    refused = tools.run(
        "kafka-configs", "--alter", *user, "--add-config", "connection_creation_rate=5"
    )
    assert refused.status == 1
