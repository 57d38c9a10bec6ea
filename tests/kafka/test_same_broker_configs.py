"""Broker configs, loggers and unknown resources: Apache Kafka's answers and ours."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import settle, topic, versions
from tests.kafka.test_same_configs import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    resource,
)

pytestmark = pytest.mark.kafka

LOGGER = 8


def alter(peer: Peer, version: int, *entries: tuple[str, int, str, Any]) -> None:
    """Alter single broker configs (name, operation, key, value), one by one."""
    for name, operation, key, value in entries:
        configs = [{"name": key, "config_operation": operation, "value": value}]
        peer.send(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            version,
            resources=[resource(BROKER, name, configs=configs)],
        )
    settle(peer)
    wanted = ["max.connections.per.ip", "log.retention.ms", "log.cleanup.policy"]
    wanted.append("listener.name.plaintext.max.connections")
    for each in ("1", ""):
        peer.send(
            ApiKey.DESCRIBE_CONFIGS,
            4,
            resources=[resource(BROKER, each, configuration_keys=wanted)],
            include_synonyms=True,
        )


@same_answers
def test_broker_configs_change_or_are_refused(peer: Peer) -> None:
    for version in versions(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        alter(
            peer,
            version,
            ("1", SET, "max.connections.per.ip", "4000"),
            ("", SET, "max.connections.per.ip", "5000"),
            ("1", SET, "max.connections.per.ip", "many"),
            ("1", SET, "max.connections.per.ip", "-1"),
            ("1", SET, "listener.name.plaintext.max.connections", "6000"),
            ("", SET, "log.retention.ms", "777777777"),
            ("1", APPEND, "log.cleanup.policy", "compact"),
            ("1", SET, "node.id", "7"),
            ("", SET, "broker.id", "7"),
            ("1", SET, "log.dirs", "/elsewhere"),
            ("9", SET, "max.connections", "8000"),
            ("one", SET, "max.connections", "8000"),
        )
        alter(
            peer,
            version,
            ("1", SUBTRACT, "log.cleanup.policy", "delete"),
            ("1", DELETE, "max.connections.per.ip", None),
        )
        alter(
            peer,
            version,
            ("", DELETE, "max.connections.per.ip", None),
            ("1", DELETE, "listener.name.plaintext.max.connections", None),
            ("1", DELETE, "log.cleanup.policy", None),
            ("", DELETE, "log.retention.ms", None),
            ("1", DELETE, "max.connections", None),
        )


@same_answers
def test_trying_changes_nothing(peer: Peer) -> None:
    name = topic(peer, "trying")
    for kind, each, key, value in (
        (TOPIC, name, "retention.ms", "5"),
        (TOPIC, name, "retention.ms", "soon"),
        (TOPIC, "nowhere", "retention.ms", "5"),
        (BROKER, "1", "max.connections", "9000"),
        (BROKER, "1", "max.connections", "some"),
    ):
        entry = {"name": key, "value": value}
        altered = {**entry, "config_operation": SET}
        for api, version, config in (
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altered),
            (ApiKey.ALTER_CONFIGS, 2, entry),
        ):
            peer.send(
                api,
                version,
                resources=[resource(kind, each, configs=[config])],
                validate_only=True,
            )
        shown = resource(kind, each, configuration_keys=[key])
        peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[shown])


def levels_of_loggers(peer: Peer) -> None:
    def levels(*names: str) -> None:
        asked = resource(LOGGER, "1", configuration_keys=list(names))
        answer = peer.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked])
        (result,) = answer.results
        rows = [
            (
                it.name == "root",
                it.value,
                it.config_source,
                it.read_only,
                it.config_type,
                it.is_sensitive,
            )
            for it in result.configs
        ]
        peer.note("DESCRIBE_CONFIGS v4", str((result.error_code, rows)))

    def alter_root(operation: int, value: str | None) -> None:
        config = {"name": "root", "config_operation": operation, "value": value}
        altered = resource(LOGGER, "1", configs=[config])
        peer.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[altered])

    alter_root(SET, "WARN")
    alter_root(9, "INFO")
    alter_root(DELETE, None)
    everything = peer.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[resource(LOGGER, "1", configuration_keys=None)],
    )
    # A logger of either broker without a level of its own.
    (shown,) = everything.results
    name = min(
        it.name for it in shown.configs if it.value == "WARN" and it.name != "root"
    )
    for entry in (
        (name, SET, "DEBUG"),
        (name, SET, "TRACE"),
        (name, SET, "FATAL"),
        (name, SET, "INFO"),
        (name, DELETE, None),
        (name, DELETE, ""),
        (name, SET, "debug"),
        (name, SET, "OFF"),
        (name, SET, None),
        (name, APPEND, "INFO"),
        (name, SUBTRACT, "INFO"),
        ("no.such.logger", SET, "INFO"),
        ("no.such.logger", DELETE, None),
        ("root", DELETE, None),
        ("root", SET, "ERROR"),
    ):
        for dry in (True, False):
            at, operation, value = entry
            config = {"name": at, "config_operation": operation, "value": value}
            told = peer.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                resources=[resource(LOGGER, "1", configs=[config])],
                validate_only=dry,
            ).responses[0]
            row = (operation, value, told.error_code.name, told.resource_type)
            peer.note("INCREMENTAL_ALTER_CONFIGS v1", str(row))
            levels("root")
            levels(name)
    levels("no.such.logger")
    for broker in ("", "9", "one"):
        asked = resource(LOGGER, broker, configuration_keys=["root"])
        peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked])
        entry = {"name": "root", "value": "INFO", "config_operation": SET}
        told = resource(LOGGER, broker, configs=[entry])
        peer.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[told])
    told = resource(LOGGER, "1", configs=[{"name": "root", "value": "INFO"}])
    peer.send(ApiKey.ALTER_CONFIGS, 2, resources=[told])


@same_answers
def test_resources_that_nobody_has(peer: Peer) -> None:
    for kind, name in ((0, ""), (3, "x"), (77, "1")):
        peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource(kind, name)])
        entry = {"name": "a", "value": "b", "config_operation": SET}
        told = resource(kind, name, configs=[entry])
        peer.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[told])
        told = resource(kind, name, configs=[{"name": "a", "value": "b"}])
        peer.send(ApiKey.ALTER_CONFIGS, 2, resources=[told])
    name = topic(peer, "named-twice")
    for api, version in (
        (ApiKey.DESCRIBE_CONFIGS, 4),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1),
        (ApiKey.ALTER_CONFIGS, 2),
    ):
        wanted = (
            {} if api is not ApiKey.DESCRIBE_CONFIGS else {"configuration_keys": []}
        )
        peer.send(api, version, resources=[resource(TOPIC, "", **wanted)])
        peer.send(api, version, resources=[])


# An allowed value other than the default, and a refused one.
ALTERED = {
    "background.threads": ("12", "0"),
    "compression.gzip.level": ("5", "12"),
    "compression.type": ("zstd", "tar"),
    "leader.replication.throttled.rate": ("1000000", "-5"),
    "log.cleaner.backoff.ms": ("20000", "-1"),
    "log.cleaner.dedupe.buffer.size": ("200000000", "much"),
    "log.cleaner.io.max.bytes.per.second": ("1000000", "fast"),
    "log.cleaner.threads": ("2", "-1"),
    "message.max.bytes": ("2000000", "-1"),
    "min.insync.replicas": ("2", "0"),
    "num.io.threads": ("6", "0"),
    "num.network.threads": ("2", "0"),
    "num.recovery.threads.per.data.dir": ("2", "0"),
    "num.replica.fetchers": ("2", "0"),
    "producer.id.expiration.ms": ("90000000", "0"),
    "unclean.leader.election.enable": ("true", "perhaps"),
}


@same_answers
def test_keys_that_kafka_alters_while_running_are_alterable(peer: Peer) -> None:
    # Kafka validates against the value in force; its broker applies changes later.
    for values in zip(*ALTERED.values(), strict=True):
        named = list(zip(ALTERED, values, strict=True))
        for who in ("1", ""):
            alter(peer, 1, *((who, SET, key, value) for key, value in named))
    # Threads may at most double, compared with the value in force.
    alter(peer, 1, *(("1", SET, key, "100") for key in ALTERED if "threads" in key))
    shown = resource(BROKER, "1", configuration_keys=list(ALTERED))
    peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[shown], include_synonyms=True)
    alter(peer, 1, *((who, DELETE, key, None) for who in ("1", "") for key in ALTERED))


# Must run last: after altered loggers, Kafka 3.9 closes the connection on which
# num.recovery.threads.per.data.dir is altered.
test_levels_of_loggers = same_answers(levels_of_loggers)
