"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, and their effects."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.network.settings import connection_limits
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import batch, leader_and_isr, produce_fields

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
# Kafka's ConfigSource.
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = range(1, 6)


@pytest.fixture
def world() -> World:
    world = World({"log.retention.hours": "5", "max.connections": "77"})
    world.create("t", retention_ms="1000")
    return world


def describe(world: World, kind: int, name: str, *keys: str, version: int = 4) -> Any:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": keys or None,
    }
    answer = world.send(
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=[resource],
        include_synonyms=True,
        include_documentation=True,
    )
    return answer.results[0]


def shown(world: World, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = describe(world, kind, name, key).configs
    return config.value, config.config_source


def alter(
    world: World, kind: int, name: str, *entries: Any, **fields: Any
) -> ErrorCode:
    """Alter configs by (key, operation, value); return the error."""
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in entries
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = world.send(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], **fields
    )
    error: ErrorCode = answer.responses[0].error_code
    return error


def replace(world: World, kind: int, name: str, **configs: str | None) -> ErrorCode:
    entries = [
        {"name": key.replace("_", "."), "value": value}
        for key, value in configs.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": entries}
    answer = world.send(ApiKey.ALTER_CONFIGS, 2, resources=[resource])
    error: ErrorCode = answer.responses[0].error_code
    return error


# ---- describing ----


def test_a_topic_shows_where_each_value_comes_from(world: World) -> None:
    world.create("plain")
    assert shown(world, TOPIC, "t", "retention.ms") == ("1000", DYNAMIC_TOPIC)
    assert shown(world, TOPIC, "plain", "retention.ms") == ("18000000", STATIC)
    assert shown(world, TOPIC, "plain", "cleanup.policy") == ("delete", DEFAULT)
    (config,) = describe(world, TOPIC, "t", "retention.ms").configs
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        ("retention.ms", "1000", DYNAMIC_TOPIC),
        ("log.retention.hours", "5", STATIC),
    ]
    # Kafka's ConfigType of a long is 5.
    assert (config.config_type, config.read_only) == (5, False)
    assert config.documentation


def test_a_topic_shows_the_configs_of_kafkas_topics(world: World) -> None:
    names = {config.name for config in describe(world, TOPIC, "t").configs}
    assert {
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    } <= names


def test_a_broker_shows_its_keys_and_which_of_them_can_change(world: World) -> None:
    assert shown(world, BROKER, "0", "max.connections") == ("77", STATIC)
    assert shown(world, BROKER, "0", "num.io.threads") == ("8", DEFAULT)
    read_only = {
        config.name: config.read_only for config in describe(world, BROKER, "0").configs
    }
    assert read_only["queued.max.requests"]
    assert read_only["listeners"]
    assert not read_only["num.io.threads"]
    assert not read_only["log.cleaner.threads"]
    assert not read_only["max.connections"]
    assert not read_only["log.retention.ms"]


def test_passwords_are_not_reported() -> None:
    key = "password.encoder.secret"
    world = World({key: "secret"})
    (config,) = describe(world, BROKER, "0", key).configs
    assert (config.value, config.is_sensitive) == (None, True)
    assert {synonym.value for synonym in config.synonyms} == {None}


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nope", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a b", ErrorCode.invalid_topic_exception),
        (BROKER, "1", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (99, "", ErrorCode.invalid_request),
    ],
)
def test_resources_without_configs_are_refused(
    world: World, kind: int, name: str, error: ErrorCode
) -> None:
    result = describe(world, kind, name)
    assert (result.error_code, result.configs) == (error, ())
    assert alter(world, kind, name, ("retention.ms", SET, "5")) is error
    assert replace(world, kind, name, retention_ms="5") is error


# ---- topics ----


def test_a_changed_config_is_in_effect_at_once_and_after_a_restart(
    world: World,
) -> None:
    small = produce_fields({("t", 0): batch(b"x" * 300)})
    assert alter(world, TOPIC, "t", ("max.message.bytes", SET, "200")) is NONE
    answer = world.send(ApiKey.PRODUCE, 9, **small).responses[0]
    assert answer.partition_responses[0].error_code is ErrorCode.message_too_large
    after = world.restarted()
    answer = after.send(ApiKey.PRODUCE, 9, **small).responses[0]
    assert answer.partition_responses[0].error_code is ErrorCode.message_too_large
    assert alter(after, TOPIC, "t", ("max.message.bytes", DELETE, None)) is NONE
    answer = after.send(ApiKey.PRODUCE, 9, **small).responses[0]
    assert answer.partition_responses[0].error_code is NONE


def test_min_insync_replicas_is_dynamic(world: World) -> None:
    alone = leader_and_isr(
        ("t", 0), leader=0, leader_epoch=1, isr=(0,), replicas=(0, 1)
    )
    world.command(ApiKey.LEADER_AND_ISR, alone)
    assert world.produce("t", b"x", acks=-1).error_code is NONE
    assert alter(world, TOPIC, "t", ("min.insync.replicas", SET, "2")) is NONE
    refused = world.produce("t", b"x", acks=-1)
    assert refused.error_code is ErrorCode.not_enough_replicas


def test_lists_can_be_extended_and_shortened(world: World) -> None:
    policy = "cleanup.policy"
    assert alter(world, TOPIC, "t", (policy, APPEND, "compact")) is NONE
    assert shown(world, TOPIC, "t", policy) == ("delete,compact", DYNAMIC_TOPIC)
    assert alter(world, TOPIC, "t", (policy, APPEND, "compact")) is NONE
    assert alter(world, TOPIC, "t", (policy, SUBTRACT, "delete")) is NONE
    assert shown(world, TOPIC, "t", policy) == ("compact", DYNAMIC_TOPIC)
    assert world.broker.logs.logs["t", 0].config.compacts


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ([("no.such", SET, "1")], ErrorCode.invalid_config),
        ([("retention.ms", SET, "soon")], ErrorCode.invalid_config),
        ([("retention.ms", SET, None)], ErrorCode.invalid_request),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
        ([("no.such", APPEND, "1")], ErrorCode.invalid_config),
        ([("retention.ms", 9, "1")], ErrorCode.invalid_request),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.invalid_request,
        ),
        ([("cleanup.policy", APPEND, "burn")], ErrorCode.invalid_config),
    ],
)
def test_a_bad_change_changes_nothing(
    world: World, entries: Any, error: ErrorCode
) -> None:
    good = ("segment.ms", SET, "9999")
    assert alter(world, TOPIC, "t", good, *entries) is error
    assert shown(world, TOPIC, "t", "segment.ms") == ("604800000", DEFAULT)
    assert shown(world, TOPIC, "t", "retention.ms") == ("1000", DYNAMIC_TOPIC)


def test_validating_changes_nothing(world: World) -> None:
    entry = ("retention.ms", SET, "7")
    assert alter(world, TOPIC, "t", entry, validate_only=True) is NONE
    assert shown(world, TOPIC, "t", "retention.ms") == ("1000", DYNAMIC_TOPIC)


def test_the_older_api_replaces_all_that_there_was(world: World) -> None:
    assert replace(world, TOPIC, "t", segment_ms="9999") is NONE
    assert shown(world, TOPIC, "t", "segment.ms") == ("9999", DYNAMIC_TOPIC)
    assert shown(world, TOPIC, "t", "retention.ms") == ("18000000", STATIC)
    assert replace(world, TOPIC, "t", segment_ms=None) is ErrorCode.invalid_request


# ---- brokers ----


def test_a_brokers_config_changes_for_one_or_for_all(world: World) -> None:
    world.create("plain")
    heard: list[BrokerConfig] = []
    world.broker.config_listeners.append(heard.append)
    key = "log.retention.ms"
    assert alter(world, BROKER, "", (key, SET, "50")) is NONE
    assert shown(world, BROKER, "0", key) == ("50", DYNAMIC_DEFAULT)
    assert world.broker.logs.logs["plain", 0].config.retention_ms == 50
    assert alter(world, BROKER, "0", (key, SET, "60")) is NONE
    assert shown(world, BROKER, "0", key) == ("60", DYNAMIC_BROKER)
    assert shown(world, BROKER, "", key) == ("50", DYNAMIC_DEFAULT)
    assert world.broker.logs.logs["plain", 0].config.retention_ms == 60
    assert world.broker.logs.logs["t", 0].config.retention_ms == 1000
    assert [config.retention_ms for config in heard] == [50, 60]
    after = world.restarted()
    assert after.broker.logs.logs["plain", 0].config.retention_ms == 60
    assert alter(after, BROKER, "0", (key, DELETE, None)) is NONE
    assert after.broker.logs.logs["plain", 0].config.retention_ms == 50


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("num.io.threads", "4", NONE),
        ("num.io.threads", "17", ErrorCode.invalid_request),
        ("num.network.threads", "0", ErrorCode.invalid_request),
        ("log.cleaner.threads", "2", NONE),
        ("log.cleaner.dedupe.buffer.size", "1048577", NONE),
        ("log.cleaner.dedupe.buffer.size", "1048576", ErrorCode.invalid_request),
        ("leader.replication.throttled.rate", "1000", NONE),
        ("compression.zstd.level", "5", NONE),
        ("listeners", "PLAINTEXT://:0", ErrorCode.invalid_request),
        ("ssl.keystore.location", "/k", ErrorCode.invalid_request),
        ("queued.max.requests", "4", ErrorCode.invalid_request),
        ("no.such", "4", ErrorCode.invalid_request),
        ("max.connections", "many", ErrorCode.invalid_request),
        ("max.connections.per.ip.overrides", "127.0.0.1:5", NONE),
    ],
)
def test_only_dynamic_keys_of_a_broker_change(
    world: World, key: str, value: str, error: ErrorCode
) -> None:
    assert alter(world, BROKER, "0", (key, SET, value)) is error


def test_a_listener_can_be_given_bounds_of_its_own(world: World) -> None:
    heard: list[BrokerConfig] = []
    world.broker.config_listeners.append(heard.append)
    key = "listener.name.plaintext.max.connections"
    rate = "listener.name.plaintext.max.connection.creation.rate"
    assert alter(world, BROKER, "0", (key, SET, "7"), (rate, SET, "8")) is NONE
    assert shown(world, BROKER, "0", key) == ("7", DYNAMIC_BROKER)
    limits = connection_limits(heard[-1], world.broker.hosts.addresses)
    assert limits.per_listener == {"PLAINTEXT": 7}
    assert limits.rate_per_listener == {"PLAINTEXT": 8}
    assert alter(world, BROKER, "", (key, SET, "9")) is NONE
    assert shown(world, BROKER, "", key) == ("9", DYNAMIC_DEFAULT)
    other = "listener.name.plaintext.num.io.threads"
    assert alter(world, BROKER, "0", (other, SET, "9")) is ErrorCode.invalid_request


def test_a_host_that_no_resolver_knows_is_refused(world: World) -> None:
    heard: list[BrokerConfig] = []
    world.broker.config_listeners.append(heard.append)
    key = "max.connections.per.ip.overrides"
    bad = (key, SET, "no.such.host.invalid:3")
    assert alter(world, BROKER, "0", bad) is ErrorCode.invalid_request
    assert heard == []
