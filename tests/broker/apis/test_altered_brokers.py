"""A broker with altered configs: reported values, persistence, name lookups."""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from broker.assembly import assemble
from broker.config import MAX_CONNECTIONS, NUM_IO_THREADS, BrokerConfig
from broker.network.settings import connection_limits
from broker.node.hosts import Hosts
from broker.protocol.errors import ConfigError
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.test_configs import (
    BROKER,
    DYNAMIC_BROKER,
    SET,
    alter,
    describe,
    shown,
)

KEYS_OF_KAFKA = Path(__file__).parents[1] / "config"


@pytest.fixture
def world() -> World:
    return World({})


OVERRIDES = "max.connections.per.ip.overrides"


def test_no_resolver_is_asked_on_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_here(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a resolver may take seconds")

    asked = []

    async def look_up(host: str) -> frozenset[str]:
        asked.append(host)
        return frozenset({"10.1.1.1", "10.1.1.2"})

    monkeypatch.setattr(socket, "getaddrinfo", asked_here)
    world.broker.hosts = Hosts(look_up)
    heard: list[BrokerConfig] = []
    world.broker.config_listeners.append(heard.append)
    bounds = (OVERRIDES, SET, "there.example:3,[::1]:4,10.9.9.9:5")
    assert alter(world, BROKER, "0", bounds) is NONE
    assert asked == ["there.example"]
    limits = connection_limits(heard[-1], world.broker.hosts.addresses)
    assert limits.per_address_overrides == {
        "10.1.1.1": 3,
        "10.1.1.2": 3,
        "::1": 4,
        "10.9.9.9": 5,
    }


def test_changes_of_others_during_a_name_lookup_are_kept(world: World) -> None:
    async def look_up(host: str) -> frozenset[str]:
        if host == "slow.example":
            assert alter(world, BROKER, "0", ("max.connections", SET, "7")) is NONE
        return frozenset({"10.1.1.1"})

    world.broker.hosts = Hosts(look_up)
    assert alter(world, BROKER, "0", (OVERRIDES, SET, "slow.example:3")) is NONE
    assert shown(world, BROKER, "0", OVERRIDES) == ("slow.example:3", DYNAMIC_BROKER)
    assert shown(world, BROKER, "0", "max.connections") == ("7", DYNAMIC_BROKER)


def test_altered_configs_are_in_force_before_a_restarted_broker_opens(
    world: World,
) -> None:
    assert alter(world, BROKER, "0", ("max.connections", SET, "7")) is NONE
    assert alter(world, BROKER, "", ("num.io.threads", SET, "16")) is NONE
    config = BrokerConfig.load(None, world.settings)
    storage, rng = world.storage.after_kill(), random.Random(5)
    broker = assemble(
        config,
        storage=storage,
        now_ns=lambda: 0,
        now_ms=lambda: 0,
        rng=rng,
    )
    in_force = broker.in_force(config)
    assert (in_force[MAX_CONNECTIONS], in_force[NUM_IO_THREADS]) == (7, 16)
    broker.open(config.advertised)
    assert broker.config is in_force


def test_a_name_that_no_resolver_knows_any_more_does_not_stop_a_start(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def look_up(host: str) -> frozenset[str]:
        return frozenset({"10.1.1.1"})

    world.broker.hosts = Hosts(look_up)
    assert alter(world, BROKER, "0", (OVERRIDES, SET, "gone.example:3")) is NONE

    def unknown(*arguments: Any, **options: Any) -> Any:
        raise socket.gaierror("played")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    after = world.restarted()
    assert "a bound on connections is not in force" in caplog.text
    assert shown(after, BROKER, "0", OVERRIDES) == ("gone.example:3", DYNAMIC_BROKER)
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        World({OVERRIDES: "gone.example:3"})


def test_keys_without_effect_are_named_at_start_and_when_they_are_altered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def told() -> list[str]:
        lines = [
            record.fields["keys"]  # type: ignore[attr-defined]  # `fields` puts it there
            for record in caplog.records
            if record.levelname == "WARNING" and "no effect" in record.message
        ]
        caplog.clear()
        return lines

    def ignored() -> list[str]:
        return [
            record.fields["keys"]  # type: ignore[attr-defined]  # as above
            for record in caplog.records
            if record.message == "unknown keys are ignored"
        ]

    world = World(
        {
            "process.roles": "broker",
            "zookeeper.set.acl": "true",
            "no.such.key": "1",
            "log.dirss": "/x",
            "doorkeeper.unknown.configs": "warn",
        }
    )
    assert ignored() == ["no.such.key,log.dirss"]
    assert told() == ["process.roles,zookeeper.set.acl"]
    assert alter(world, BROKER, "0", ("metric.reporters", SET, "a.B")) is NONE
    assert told() == ["metric.reporters"]
    assert alter(world, BROKER, "0", ("max.connections", SET, "9")) is NONE
    assert told() == []
    assert ignored() == []


def test_a_broker_tells_of_kafkas_own_keys_and_of_ours(world: World) -> None:
    kafka = json.loads((KEYS_OF_KAFKA / "kafka-keys.json").read_text())
    modes = (KEYS_OF_KAFKA / "kafka-update-modes.txt").read_text().splitlines()
    kept = {line.split()[0] for line in modes if line.endswith(" internal")}
    told = {config.name for config in describe(world, BROKER, "0").configs}
    theirs = {name for name in told if not name.startswith("doorkeeper.")}
    assert theirs == kafka.keys() - kept
    assert alter(world, BROKER, "0", ("remote.log.reader.threads", SET, "9")) is NONE
    assert shown(world, BROKER, "0", "remote.log.reader.threads")[0] == "9"
