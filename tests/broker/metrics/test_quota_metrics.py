"""Quotas as metrics, under the names of Kafka's JMX exporter rules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)
from tests.broker.metrics.text import exposition, samples

USER = ("user", "")
CLIENT = ("clientId", "c/1")


def labelled(found: dict[Any, float], name: str, resource: str) -> float | None:
    return found.get((name, CLIENT, ("resource", resource), USER))


def test_rates_and_throttle_times_of_clients() -> None:
    world = World()
    world.create("t")
    values = {
        "producer_byte_rate": 100.0,
        "consumer_byte_rate": 1.0,
        "request_percentage": 50.0,
        "controller_mutation_rate": 1.0,
    }
    entity = [{"entity_type": "client-id", "entity_name": "c/1"}]
    ops = [{"key": key, "value": value} for key, value in values.items()]
    world.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": ops}])
    fields = produce_fields({("t", 0): batch(b"v" * 3000)})
    told: list[timedelta] = [
        world.send(ApiKey.PRODUCE, 9, client_id="c/1", **fields).throttle_time
        for _ in range(2)
    ]
    world.send(ApiKey.FETCH, 12, client_id="c/1", **fetch_fields({("t", 0): 0}))
    topics = [new_topic("u", 13), new_topic("v", 1)]
    world.send(
        ApiKey.CREATE_TOPICS, 6, client_id="c/1", topics=topics, timeout=SECONDS_30
    )
    found = samples(exposition(world.apis.metrics()))
    assert labelled(found, "kafka_server_quota_tokens", "ControllerMutation") == -2
    throttle = "kafka_server_quota_throttle_time"
    assert labelled(found, throttle, "ControllerMutation") == 2000
    # The mean of the throttle times other than 0.
    told_ms = [each.total_seconds() * 1000 for each in told]
    mean = sum(told_ms) / len([each for each in told_ms if each])
    assert labelled(found, throttle, "Produce") == pytest.approx(mean)
    rate = labelled(found, "kafka_server_quota_byte_rate", "Produce")
    # Two requests over ten seconds.
    assert rate == pytest.approx(2 * 3100 / 10, rel=0.05)
    # The throttled response was empty; the records it left out do not count.
    assert labelled(found, "kafka_server_quota_byte_rate", "Fetch") == 0
    assert labelled(found, throttle, "Fetch")
    assert labelled(found, "kafka_server_quota_request_time", "Request") is not None
    world.pass_ms(60_000)
    found = samples(exposition(world.apis.metrics()))
    assert labelled(found, throttle, "Produce") is None
    assert labelled(found, "kafka_server_quota_byte_rate", "Produce") == 0


def test_no_quota_makes_no_sample() -> None:
    world = World()
    world.create("t")
    assert "quota" not in exposition(world.apis.metrics())


def test_rates_of_addresses() -> None:
    world = World()
    entity = [{"entity_type": "ip", "entity_name": "::ffff:10.0.0.9"}]
    ops = [{"key": "connection_creation_rate", "value": 1.0}]
    world.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": ops}])
    rates = world.broker.address_rates
    assert [rates.record("10.0.0.9", 0) for _ in range(11)] == [0] * 10 + [1000]
    assert not any(rates.record("10.0.0.8", 0) for _ in range(11))
    name = "kafka_server_socket_server_metrics_connection_accept_rate"
    found = samples(exposition(world.apis.metrics()))
    assert found[name, ("ip", "10.0.0.9")] == 1
    assert [key for key in found if key[0] == name] == [(name, ("ip", "10.0.0.9"))]
    ops = [{"key": "connection_creation_rate", "value": 0.0, "remove": True}]
    world.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": ops}])
    assert rates.record("10.0.0.9", 0) == 0


def test_very_many_addresses_are_forgotten_and_the_latest_shown() -> None:
    world = World()
    rates = world.broker.address_rates
    rates.put("ips/<default>", {"connection_creation_rate": "5"})
    for number in range(5000):
        rates.record(f"10.1.{number // 256}.{number % 256}", number)
    found = samples(exposition(world.apis.metrics()))
    assert len([key for key in found if key[1:] and key[1][0] == "ip"]) == 1000
    rates.record("10.0.0.1", 20_000)
    for _ in range(2600):
        rates.record("10.0.0.1", 20_000)
    assert len(rates.latest(10_000)) == 1
