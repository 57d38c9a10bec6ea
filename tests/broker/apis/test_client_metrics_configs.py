"""Configs of client metrics subscriptions: described, altered, checked, listed."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.test_configs import (
    APPEND,
    DEFAULT,
    DELETE,
    SET,
    SUBTRACT,
    alter,
    describe,
    replace,
    shown,
)
from tests.broker.apis.test_group_configs import listed

METRICS = 16
# Kafka's ConfigSource.
OF_METRICS = 7


@pytest.fixture
def world() -> World:
    return World()


def test_a_subscription_shows_kafkas_defaults_until_it_is_altered(world: World) -> None:
    found = {config.name: config for config in describe(world, METRICS, "s").configs}
    values = {name: config.value for name, config in found.items()}
    assert values == {"interval.ms": "300000", "match": "", "metrics": ""}
    assert {config.config_source for config in found.values()} == {DEFAULT}
    assert not any(config.read_only for config in found.values())
    assert not any(config.synonyms for config in found.values())
    assert alter(world, METRICS, "s", ("interval.ms", SET, "60000")) is NONE
    assert shown(world, METRICS, "s", "interval.ms") == ("60000", OF_METRICS)
    after = world.restarted()
    assert shown(after, METRICS, "s", "interval.ms") == ("60000", OF_METRICS)
    assert shown(after, METRICS, "r", "interval.ms") == ("300000", DEFAULT)


def test_lists_are_only_set_and_name_each_item_once(world: World) -> None:
    """The answers are those of Kafka 4.4.0."""
    assert alter(world, METRICS, "s", ("metrics", SET, "a., b.,a.")) is NONE
    assert shown(world, METRICS, "s", "metrics") == ("a.,b.", OF_METRICS)
    for operation in (APPEND, SUBTRACT):
        entry = ("metrics", operation, "a.")
        assert alter(world, METRICS, "s", entry) is ErrorCode.invalid_config


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("metrics", "*", NONE),
        ("metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.", NONE),
        ("metrics", "", NONE),
        ("metrics", "a,,b", ErrorCode.invalid_config),
        ("interval.ms", "100", NONE),
        ("interval.ms", "3600000", NONE),
        ("interval.ms", "99", ErrorCode.invalid_request),
        ("interval.ms", "3600001", ErrorCode.invalid_request),
        ("interval.ms", "soon", ErrorCode.invalid_config),
        ("match", "client_software_name=Java, client_software_version=11.1.*", NONE),
        ("match", "client_id = a|b", NONE),
        ("match", "client_id=", ErrorCode.invalid_config),
        ("match", "client_id=a=b", ErrorCode.invalid_config),
        ("match", "10", ErrorCode.invalid_config),
        ("match", "user=a", ErrorCode.invalid_config),
        ("match", "client_id=(", ErrorCode.invalid_config),
        ("match", "client_id=((a{100}){100}){100}", ErrorCode.invalid_config),
        ("client_id", "a", ErrorCode.invalid_request),
        ("metrics", None, ErrorCode.invalid_request),
    ],
)
def test_a_subscription_is_checked_as_by_kafka(
    world: World, key: str, value: Any, error: ErrorCode
) -> None:
    assert alter(world, METRICS, "s", (key, SET, value), validate_only=True) is error
    assert listed(world, METRICS) == set()
    assert alter(world, METRICS, "s", (key, SET, value)) is error
    assert bool(listed(world, METRICS)) is (error is NONE)


def test_many_patterns_are_checked_with_preemption_points(world: World) -> None:
    patterns = ",".join(f"client_id=c{number}" for number in range(1000))
    configs = [{"name": "match", "config_operation": SET, "value": patterns}]
    resource = {"resource_type": METRICS, "resource_name": "s", "configs": configs}
    call = world.start(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert call.answer.responses[0].error_code is NONE
    assert call.preemption_points >= 1000 // 64


def test_subscriptions_are_listed_by_either_version(world: World) -> None:
    assert replace(world, METRICS, "a/b", interval_ms="5000") is NONE
    assert alter(world, 32, "g", ("consumer.session.timeout.ms", SET, "50000")) is NONE
    assert listed(world, METRICS) == {(METRICS, "a/b")}
    # The broker and its loggers are resources, too.
    own = {(4, "0"), (8, "0")}
    assert listed(world) == {(METRICS, "a/b"), (32, "g"), *own}
    older = world.send(ApiKey.LIST_CONFIG_RESOURCES, 0)
    assert [row.resource_name for row in older.config_resources] == ["a/b"]
    assert alter(world, METRICS, "a/b", ("interval.ms", DELETE, None)) is NONE
    assert listed(world, METRICS) == set()


def test_a_subscription_needs_a_name(world: World) -> None:
    result = describe(world, METRICS, "")
    assert (result.error_code, result.configs) == (ErrorCode.invalid_request, ())
    entry = ("interval.ms", SET, "5000")
    assert alter(world, METRICS, "", entry) is ErrorCode.invalid_request
