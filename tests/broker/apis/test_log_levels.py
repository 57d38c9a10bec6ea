"""Levels of loggers are described and altered while the broker runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.test_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    alter,
    describe,
)

LOGGER = 8
NAME = "broker.log.upkeep.manager"
LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10}


@pytest.fixture
def world() -> Iterator[World]:
    loggers = [logging.getLogger(name) for name in ("broker", NAME)]
    before = [each.level for each in loggers]
    yield World()
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


def level(world: World, name: str) -> str:
    (config,) = describe(world, LOGGER, "0", name).configs
    found: str = config.value
    return found


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_that_is_set_decides_about_lines(world: World, name: str) -> None:
    assert alter(world, LOGGER, "0", (NAME, SET, name)) is NONE
    assert level(world, NAME) == name
    logger = logging.getLogger(NAME)
    for number in LEVELS.values():
        assert logger.isEnabledFor(number) is (number >= LEVELS[name])


def test_a_logger_without_a_level_has_that_of_the_root(world: World) -> None:
    assert alter(world, LOGGER, "0", ("root", SET, "ERROR")) is NONE
    assert level(world, NAME) == "ERROR"
    assert alter(world, LOGGER, "0", (NAME, SET, "TRACE")) is NONE
    assert level(world, "root") == "ERROR"
    assert level(world, NAME) == "TRACE"
    assert alter(world, LOGGER, "0", (NAME, DELETE, None)) is NONE
    assert level(world, NAME) == "ERROR"


def test_of_several_levels_all_are_set_or_none(world: World) -> None:
    before = level(world, "root")
    entries = (("root", SET, "FATAL"), ("no.such", SET, "INFO"))
    assert alter(world, LOGGER, "0", *entries) is ErrorCode.invalid_config
    assert level(world, "root") == before


def test_trying_sets_nothing(world: World) -> None:
    before = level(world, "root")
    entry = ("root", SET, "FATAL")
    assert alter(world, LOGGER, "0", entry, validate_only=True) is NONE
    assert level(world, "root") == before


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        # The answers of Kafka 3.9 and 4.4 (tests/kafka/test_same_broker_configs.py).
        ((NAME, SET, "debug"), ErrorCode.invalid_config),
        ((NAME, SET, "OFF"), ErrorCode.invalid_config),
        ((NAME, SET, None), ErrorCode.invalid_request),
        ((NAME, SUBTRACT, "INFO"), ErrorCode.invalid_request),
        ((NAME, 9, "INFO"), ErrorCode.invalid_request),
        (("no.such", SET, "INFO"), ErrorCode.invalid_config),
        (("no.such", DELETE, None), ErrorCode.invalid_config),
        (("root", DELETE, None), ErrorCode.invalid_request),
    ],
)
def test_other_levels_and_loggers_are_refused(
    world: World, entry: Any, error: ErrorCode
) -> None:
    before = level(world, NAME)
    assert alter(world, LOGGER, "0", entry) is error
    assert level(world, NAME) == before
    assert describe(world, LOGGER, "0", "no.such").configs == ()


def test_lists_and_other_brokers_are_refused(world: World) -> None:
    entry = ("root", APPEND, "INFO")
    assert alter(world, LOGGER, "0", entry) is ErrorCode.invalid_request
    entry = ("root", SET, "INFO")
    for name in ("", "7", "zero"):
        assert alter(world, LOGGER, name, entry) is ErrorCode.invalid_request
        assert describe(world, LOGGER, name).error_code is ErrorCode.invalid_request
