"""Commands of a controller: obeyed everywhere, as in Kafka, or where it is said."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode
from tests.broker.apis.broker_world import World

KEY = "doorkeeper.controller.listeners"
COMMANDS = [
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
]
WHO = {"controller_id": 9, "controller_epoch": 1, "broker_epoch": -1}
DENIED = ErrorCode.cluster_authorization_failed


def world(**settings: str) -> World:
    """Return a broker of two listeners; its clients are on the one called PLAINTEXT."""
    return World(
        {
            "listeners": "PLAINTEXT://:9092,INSIDE://:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
            **settings,
        }
    )


def outcome(world: World, key: ApiKey, version: int = 1) -> Any:
    return world.send(key, version, **WHO).error_code


@pytest.mark.parametrize("key", COMMANDS)
def test_without_a_word_they_are_obeyed_on_any_listener(key: ApiKey) -> None:
    assert outcome(world(), key) is not DENIED


@pytest.mark.parametrize("key", COMMANDS)
def test_on_another_listener_than_theirs_they_are_not_authorized(key: ApiKey) -> None:
    told = world(**{KEY: "inside"})
    for version in (0, 1, 3):
        assert outcome(told, key, version) is DENIED


@pytest.mark.parametrize("key", COMMANDS)
def test_on_their_listener_they_are_obeyed(key: ApiKey) -> None:
    assert outcome(world(**{KEY: "INSIDE,plaintext"}), key) is not DENIED


def test_proposals_of_leaders_come_on_these_listeners_too() -> None:
    key = ApiKey.ALTER_PARTITION
    assert outcome(world(**{KEY: "INSIDE"}), key, 3) is DENIED
    assert outcome(world(**{KEY: "PLAINTEXT"}), key, 3) is not DENIED


def test_clients_are_served_on_any_listener() -> None:
    told = world(**{KEY: "INSIDE"})
    told.create("t")
    assert told.produce("t", b"x").error_code is ErrorCode.none


def test_a_listener_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=f"{KEY}: found 'OUTSIDE'"):
        BrokerConfig.load(None, {KEY: "PLAINTEXT,OUTSIDE"})
    BrokerConfig.load(None, {KEY: "controller", "doorkeeper.scheduler": "planes"})
