"""Configs of groups: Kafka 4.4's answers and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from tests.kafka.conftest import SETTINGS, Both, beside_kafka, same_answers
from tests.kafka.java_tools import NEWEST, KafkaPrograms
from tests.kafka.peer import Peer
from tests.kafka.requests import settle, topic
from tests.kafka.test_same_configs import APPEND, DELETE, SET, SUBTRACT, resource
from tests.kafka.test_same_consumer_groups import beat
from tests.kafka.test_same_groups import ready

pytestmark = pytest.mark.kafka

GROUP = 32
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


@pytest.fixture(scope="module")
def both(
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    """Yield Apache Kafka 4.4 and Doorkeeper, with a non-default heartbeat interval."""
    directory = tmp_path_factory.mktemp("group-configs")
    settings = {**SETTINGS, "group_consumer_heartbeat_interval_ms": "6000"}
    with beside_kafka(programs_of(NEWEST), directory, **settings) as both:
        yield both


def describe(peer: Peer, *groups: str) -> None:
    for version in APIS[ApiKey.DESCRIBE_CONFIGS].served:
        for wanted in (None, [SESSION, HEARTBEAT, ASSIGNMENT, "no.such"]):
            for explains in (False, True):
                peer.send(
                    ApiKey.DESCRIBE_CONFIGS,
                    version,
                    resources=[
                        resource(GROUP, group, configuration_keys=wanted)
                        for group in groups
                    ],
                    include_synonyms=explains,
                    include_documentation=explains,
                )


def listed(peer: Peer) -> None:
    for kinds in ([GROUP], [GROUP, 16]):
        peer.send(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=kinds)


def alter(
    peer: Peer, group: str, *entries: tuple[str, int, Any], **fields: Any
) -> None:
    for version in APIS[ApiKey.INCREMENTAL_ALTER_CONFIGS].served:
        configs = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in entries
        ]
        peer.send(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            version,
            resources=[resource(GROUP, group, configs=configs)],
            **fields,
        )
    settle(peer)


@same_answers
def test_groups_show_the_brokers_values(peer: Peer) -> None:
    describe(peer, "no-such-group", "")
    listed(peer)


@same_answers
def test_configs_of_a_group_are_altered_within_bounds(peer: Peer) -> None:
    group = "bounded"
    for key, values in {
        SESSION: ("45000", "60000", "44999", "60001", "0", "-1", "", "long", None),
        HEARTBEAT: ("5000", "15000", "4999", "15001", " 7000 ", "7e3", "2147483648"),
        ASSIGNMENT: ("0", "15000", "-1", "15001", "1.5"),
        "no.such": ("1",),
        "group.consumer.session.timeout.ms": ("45000",),
        "retention.ms": ("1",),
    }.items():
        for value in values:
            alter(peer, group, (key, SET, value), validate_only=True)
            alter(peer, group, (key, SET, value))
    describe(peer, group, "another")
    listed(peer)
    for operation in (APPEND, SUBTRACT):
        alter(peer, group, (HEARTBEAT, operation, "7000"))
    alter(peer, group, (HEARTBEAT, SET, "7000"), (HEARTBEAT, DELETE, None))
    alter(peer, "", (HEARTBEAT, SET, "7000"))
    alter(peer, group, (HEARTBEAT, DELETE, None), (SESSION, DELETE, None))
    describe(peer, group)
    alter(peer, group, (ASSIGNMENT, DELETE, None), ("no.such", DELETE, None))
    listed(peer)


@same_answers
def test_configs_of_a_group_are_replaced(peer: Peer) -> None:
    for version in APIS[ApiKey.ALTER_CONFIGS].served:
        for name, configs in (
            ("replaced", {SESSION: "50000", HEARTBEAT: "8000"}),
            ("replaced", {SESSION: "50000", HEARTBEAT: "80000"}),
            ("replaced", {SESSION: None}),
            ("replaced", {"no.such": "1"}),
            ("replaced", {HEARTBEAT: "9000"}),
            ("", {HEARTBEAT: "9000"}),
            ("replaced", {}),
        ):
            entries = [{"name": key, "value": value} for key, value in configs.items()]
            peer.send(
                ApiKey.ALTER_CONFIGS,
                version,
                resources=[resource(GROUP, name, configs=entries)],
            )
            settle(peer)
            wanted = resource(
                GROUP, "replaced", configuration_keys=[SESSION, HEARTBEAT]
            )
            peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[wanted])


@same_answers
def test_a_members_interval_is_that_of_its_group(peer: Peer) -> None:
    name = topic(peer, "own-interval", 1)
    group = ready(peer, "own-interval")
    epoch = beat(peer, group, "a", subscribed_topic_names=[name]).member_epoch
    alter(peer, group, (HEARTBEAT, SET, "12000"))
    beat(peer, group, "a", epoch)
    alter(peer, group, (HEARTBEAT, DELETE, None))
    beat(peer, group, "a", epoch)
