"""SCRAM users by Kafka's own tools, against our broker."""

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
