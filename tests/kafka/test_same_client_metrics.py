"""Client metrics subscriptions: Kafka 4.4's answers and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from tests.kafka.conftest import SETTINGS, Both, beside_kafka, same_answers
from tests.kafka.java_tools import NEWEST, KafkaPrograms
from tests.kafka.peer import Peer
from tests.kafka.requests import settle
from tests.kafka.test_same_configs import APPEND, DELETE, SET, SUBTRACT, resource

pytestmark = pytest.mark.kafka

METRICS = 16
_TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.fixture(scope="module")
def both(
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    """Yield Apache Kafka 4.4 and Doorkeeper."""
    directory = tmp_path_factory.mktemp("client-metrics")
    with beside_kafka(programs_of(NEWEST), directory, **SETTINGS) as both:
        yield both


def describe(peer: Peer, *names: str) -> None:
    for version in APIS[ApiKey.DESCRIBE_CONFIGS].served:
        for wanted in (None, ["interval.ms", "no.such"]):
            peer.send(
                ApiKey.DESCRIBE_CONFIGS,
                version,
                resources=[
                    resource(METRICS, name, configuration_keys=wanted) for name in names
                ],
                include_synonyms=True,
                include_documentation=True,
            )


def listed(peer: Peer) -> None:
    peer.send(ApiKey.LIST_CONFIG_RESOURCES, 0)
    for kinds in ([METRICS], [METRICS, 32]):
        peer.send(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=kinds)


def alter(peer: Peer, name: str, *entries: tuple[str, int, Any], **fields: Any) -> None:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in entries
    ]
    for version in APIS[ApiKey.INCREMENTAL_ALTER_CONFIGS].served:
        altered = resource(METRICS, name, configs=configs)
        peer.send(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=[altered], **fields
        )
    settle(peer)


@same_answers
def test_subscriptions_that_nobody_has_set(peer: Peer) -> None:
    describe(peer, "nothing", "")
    listed(peer)


@same_answers
def test_subscriptions_are_altered_or_refused(peer: Peer) -> None:
    for key, values in {
        "metrics": ("a.,b.", "*", "", " a. , c. ", "a,a", "a,,b", "*,a", None),
        "interval.ms": ("100", "3600000", "99", "3600001", "soon", "", " 7000 "),
        "match": (
            "client_software_name=Java, client_software_version=11.1.*",
            "client_id = a|b",
            "client_id==",
            "client_id=a==",
            "client_id=",
            "client_id=a=b",
            "client_id",
            "=a",
            "",
            "10",
            "user=a",
            "client_id=(",
            "client_id=[a-c]+,client_id=b",
            "client_instance_id=x,client_source_address=127.*,client_source_port=1",
        ),
        "client_id": ("a",),
    }.items():
        for value in values:
            alter(peer, "s", (key, SET, value), validate_only=True)
            alter(peer, "s", (key, SET, value))
            described = resource(METRICS, "s", configuration_keys=[key])
            peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[described])
    describe(peer, "s", "another")
    listed(peer)
    alter(peer, "", ("metrics", SET, "a"))
    for key in ("metrics", "interval.ms", "match"):
        alter(peer, "s", (key, DELETE, None))
    describe(peer, "s")
    listed(peer)


@same_answers
def test_lists_are_not_extended_or_shortened(peer: Peer) -> None:
    for key, value in (("metrics", "a,b"), ("match", "client_id=a")):
        for operation in (APPEND, APPEND, SUBTRACT, SUBTRACT):
            alter(peer, "lists", (key, operation, value))
            describe(peer, "lists")
    alter(peer, "lists", ("interval.ms", APPEND, "5000"))
    alter(peer, "lists", ("no.such", APPEND, "5000"))


@same_answers
def test_subscriptions_are_replaced(peer: Peer) -> None:
    for version in APIS[ApiKey.ALTER_CONFIGS].served:
        for configs in (
            {"metrics": "a", "interval.ms": "5000"},
            {"interval.ms": "5"},
            {"match": "client_id=a"},
            {"no.such": "1"},
            {"metrics": None},
            {},
        ):
            entries = [{"name": key, "value": value} for key, value in configs.items()]
            replaced = resource(METRICS, "replaced", configs=entries)
            peer.send(ApiKey.ALTER_CONFIGS, version, resources=[replaced])
            settle(peer)
            described = resource(METRICS, "replaced", configuration_keys=None)
            peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[described])


@same_answers
def test_telemetry_is_not_advertised_without_a_receiver(peer: Peer) -> None:
    alter(peer, "wanted", ("metrics", SET, "*"), ("interval.ms", SET, "100"))
    found = peer.ask(ApiKey.API_VERSIONS, 3, client_software_name="a")
    advertised = {row.api_key for row in found.api_keys} & _TELEMETRY
    peer.note("telemetry", str(sorted(advertised)))
    alter(peer, "wanted", ("metrics", DELETE, None), ("interval.ms", DELETE, None))
