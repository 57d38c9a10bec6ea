"""Configs of single groups: described, altered, bounded, in effect, listed."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import SECONDS_30
from tests.broker.apis.test_configs import (
    APPEND,
    DEFAULT,
    DELETE,
    SET,
    STATIC,
    alter,
    describe,
    replace,
    shown,
)

GROUP = 32
# Kafka's ConfigSource.
OF_GROUP = 8
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


@pytest.fixture
def world() -> World:
    world = World({"group.consumer.heartbeat.interval.ms": "6000"})
    world.create("t")
    # FindCoordinator creates the topic of groups.
    world.send(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    return world


def listed(world: World, *kinds: int) -> set[tuple[int, str]]:
    answer = world.send(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=kinds)
    assert answer.error_code is NONE
    return {(row.resource_type, row.resource_name) for row in answer.config_resources}


def interval_ms(world: World, group: str, epoch: int = 0) -> int:
    """Return the heartbeat interval in the answer to a member's heartbeat."""
    answer = world.send(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        **({} if epoch else {"rebalance_timeout": SECONDS_30}),
        subscribed_topic_names=None if epoch else ["t"],
        topic_partitions=None if epoch else [],
    )
    assert answer.error_code is NONE, answer
    return round(answer.heartbeat_interval.total_seconds() * 1000)


def test_a_group_has_the_brokers_values_until_it_has_its_own(world: World) -> None:
    assert shown(world, GROUP, "g", SESSION) == ("45000", DEFAULT)
    assert shown(world, GROUP, "g", HEARTBEAT) == ("6000", STATIC)
    assert shown(world, GROUP, "g", ASSIGNMENT) == ("1000", DEFAULT)
    assert alter(world, GROUP, "g", (HEARTBEAT, SET, "7000")) is NONE
    (config,) = describe(world, GROUP, "g", HEARTBEAT).configs
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        (HEARTBEAT, "7000", OF_GROUP),
        ("group.consumer.heartbeat.interval.ms", "6000", STATIC),
        ("group.consumer.heartbeat.interval.ms", "5000", DEFAULT),
    ]
    # Kafka's ConfigType of an int is 3.
    assert (config.value, config.config_type, config.read_only) == ("7000", 3, False)
    assert config.documentation
    assert shown(world, GROUP, "h", HEARTBEAT) == ("6000", STATIC)


def test_a_groups_config_counts_from_the_next_heartbeat_and_stays(
    world: World,
) -> None:
    assert interval_ms(world, "g") == 6000
    assert alter(world, GROUP, "g", (HEARTBEAT, SET, "9000")) is NONE
    assert interval_ms(world, "g", 2) == 9000
    assert interval_ms(world, "h") == 6000
    after = world.restarted()
    assert interval_ms(after, "g", 2) == 9000
    assert replace(after, GROUP, "g", consumer_heartbeat_interval_ms="8000") is NONE
    assert interval_ms(after, "g", 2) == 8000
    assert alter(after, GROUP, "g", (HEARTBEAT, DELETE, None)) is NONE
    assert interval_ms(after, "g", 2) == 6000


def test_a_longer_session_keeps_a_silent_member(world: World) -> None:
    assert alter(world, GROUP, "g", (SESSION, SET, "60000")) is NONE
    for group in ("g", "h"):
        interval_ms(world, group)
    world.pass_ms(59_999)
    answer = world.send(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g", "h"])
    assert [len(group.members) for group in answer.groups] == [1, 0]


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ([(SESSION, SET, "45000"), (HEARTBEAT, SET, "15000")], NONE),
        ([(SESSION, SET, "60000"), (ASSIGNMENT, SET, "0")], NONE),
        ([(SESSION, SET, "44999")], ErrorCode.invalid_config),
        ([(SESSION, SET, "60001")], ErrorCode.invalid_config),
        ([(HEARTBEAT, SET, "4999")], ErrorCode.invalid_config),
        ([(HEARTBEAT, SET, "15001")], ErrorCode.invalid_config),
        ([(ASSIGNMENT, SET, "15001")], ErrorCode.invalid_config),
        ([(SESSION, SET, "long")], ErrorCode.invalid_config),
        ([(SESSION, SET, "")], ErrorCode.invalid_config),
        ([(SESSION, SET, None)], ErrorCode.invalid_request),
        ([(SESSION, APPEND, "45000")], ErrorCode.invalid_config),
        ([("retention.ms", SET, "1")], ErrorCode.invalid_config),
        ([("group.consumer.max.size", SET, "1")], ErrorCode.invalid_config),
    ],
)
def test_a_group_keeps_to_the_brokers_bounds(
    world: World, entries: Any, error: ErrorCode
) -> None:
    """The bounds are Kafka's defaults."""
    assert alter(world, GROUP, "g", *entries, validate_only=True) is error
    assert listed(world, GROUP) == set()
    assert alter(world, GROUP, "g", *entries) is error
    assert bool(listed(world, GROUP)) is (error is NONE)


def test_a_session_is_longer_than_the_interval_of_heartbeats() -> None:
    bounds = {
        "group.consumer.min.session.timeout.ms": "1",
        "group.consumer.max.heartbeat.interval.ms": "50000",
    }
    world = World(bounds)
    assert alter(world, GROUP, "g", (SESSION, SET, "5001")) is NONE
    bad = (SESSION, SET, "5000")
    assert alter(world, GROUP, "g", bad) is ErrorCode.invalid_config
    bad = (HEARTBEAT, SET, "45000")
    assert alter(world, GROUP, "h", bad) is ErrorCode.invalid_config
    assert alter(world, GROUP, "h", bad, (SESSION, SET, "45001")) is NONE


def test_a_stored_value_beyond_new_bounds_counts_as_the_nearest(world: World) -> None:
    assert alter(world, GROUP, "g", (HEARTBEAT, SET, "14000")) is NONE
    bounds = {"group.consumer.max.heartbeat.interval.ms": "10000"}
    after = World({**world.settings, **bounds}, world.storage.after_kill())
    assert interval_ms(after, "g") == 10_000
    assert shown(after, GROUP, "g", HEARTBEAT) == ("14000", OF_GROUP)


def test_groups_with_configs_are_listed(world: World) -> None:
    for group in ("a/b", "ü"):
        assert alter(world, GROUP, group, (HEARTBEAT, SET, "7000")) is NONE
    interval_ms(world, "without")
    assert listed(world, GROUP) == {(GROUP, "a/b"), (GROUP, "ü")}
    assert listed(world) > {(GROUP, "a/b"), (2, "t"), (4, "0")}
    assert alter(world, GROUP, "ü", (HEARTBEAT, DELETE, None)) is NONE
    assert listed(world.restarted(), GROUP, 4) == {(GROUP, "a/b"), (4, "0")}


def test_a_group_without_a_name_has_no_configs(world: World) -> None:
    result = describe(world, GROUP, "")
    assert (result.error_code, result.configs) == (ErrorCode.invalid_request, ())
    entry = (HEARTBEAT, SET, "7000")
    assert alter(world, GROUP, "", entry) is ErrorCode.invalid_request
    assert replace(world, GROUP, "") is ErrorCode.invalid_request
