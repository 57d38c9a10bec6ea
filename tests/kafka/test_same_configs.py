"""Configs and log directories: Apache Kafka's answers and ours."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import settle, topic, versions

pytestmark = pytest.mark.kafka

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **fields}


@same_answers
def test_describe_topic_configs(peer: Peer) -> None:
    name = topic(peer, "described", retention_ms="4000", cleanup_policy="compact")
    for version in versions(ApiKey.DESCRIBE_CONFIGS):
        for synonyms in (False, True):
            for wanted in (None, ["retention.ms", "no.such", "segment.bytes"], []):
                peer.send(
                    ApiKey.DESCRIBE_CONFIGS,
                    version,
                    resources=[
                        resource(TOPIC, name, configuration_keys=wanted),
                        resource(TOPIC, "nowhere", configuration_keys=wanted),
                        resource(TOPIC, "a/b", configuration_keys=wanted),
                    ],
                    include_synonyms=synonyms,
                    include_documentation=synonyms,
                )


@same_answers
def test_describe_broker_configs(peer: Peer) -> None:
    wanted = [
        "max.connections",
        "message.max.bytes",
        "num.partitions",
        "log.retention.ms",
        "log.retention.hours",
        "num.io.threads",
        "no.such",
    ]
    for version in versions(ApiKey.DESCRIBE_CONFIGS):
        for name in ("1", "", "9", "one"):
            peer.send(
                ApiKey.DESCRIBE_CONFIGS,
                version,
                resources=[resource(BROKER, name, configuration_keys=wanted)],
                include_synonyms=True,
            )


@same_answers
def test_alter_topic_configs(peer: Peer) -> None:
    for version in versions(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        name = topic(peer, f"altered-{version}")
        for operation, key, value in (
            (SET, "retention.ms", "5000"),
            (SET, "retention.ms", "soon"),
            (SET, "retention.ms", None),
            (SET, "no.such", "1"),
            (APPEND, "cleanup.policy", "compact"),
            (SUBTRACT, "cleanup.policy", "delete"),
            (APPEND, "retention.ms", "1"),
            (DELETE, "segment.bytes", None),
            (7, "retention.ms", "1"),
            (DELETE, "retention.ms", None),
        ):
            configs = [{"name": key, "config_operation": operation, "value": value}]
            peer.send(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                version,
                resources=[
                    resource(TOPIC, each, configs=configs) for each in (name, "nowhere")
                ],
            )
            settle(peer)
            described = resource(
                TOPIC, name, configuration_keys=["retention.ms", "cleanup.policy"]
            )
            peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=[described])
    twice = [{"name": "retention.ms", "config_operation": SET, "value": "1"}] * 2
    peer.send(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[resource(TOPIC, "altered-0", configs=twice)],
    )


@same_answers
def test_replace_topic_configs(peer: Peer) -> None:
    for version in versions(ApiKey.ALTER_CONFIGS):
        name = topic(peer, f"replaced-{version}", retention_ms="9000")
        for configs in (
            [{"name": "segment.bytes", "value": "5000000"}],
            [{"name": "segment.bytes", "value": "no"}],
            [{"name": "no.such", "value": "1"}],
            [{"name": "segment.bytes", "value": None}],
            [],
        ):
            peer.send(
                ApiKey.ALTER_CONFIGS,
                version,
                resources=[
                    resource(TOPIC, each, configs=configs) for each in (name, "nowhere")
                ],
            )
            settle(peer)
            peer.send(
                ApiKey.DESCRIBE_CONFIGS,
                4,
                resources=[
                    resource(
                        TOPIC,
                        name,
                        configuration_keys=["retention.ms", "segment.bytes"],
                    )
                ],
            )


@same_answers
def test_describe_log_dirs(peer: Peer) -> None:
    name = topic(peer, "on-disk", 2)
    for version in versions(ApiKey.DESCRIBE_LOG_DIRS):
        peer.send(
            ApiKey.DESCRIBE_LOG_DIRS,
            version,
            topics=[
                {"topic": name, "partitions": [0, 1, 7]},
                {"topic": "nowhere", "partitions": [0]},
            ],
        )


@same_answers
def test_elections_and_reassignments(peer: Peer) -> None:
    name = topic(peer, "led", 2)
    for version in versions(ApiKey.ELECT_LEADERS):
        for kind in (0, 1):
            peer.send(
                ApiKey.ELECT_LEADERS,
                version,
                election_type=kind,
                topic_partitions=[
                    {"topic": name, "partitions": [0, 7]},
                    {"topic": "nowhere", "partitions": [0]},
                ],
            )
    peer.send(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        topics=[{"name": name, "partition_indexes": [0, 1]}],
    )


@same_answers
def test_there_are_no_resources_of_client_metrics(peer: Peer) -> None:
    peer.send(ApiKey.LIST_CONFIG_RESOURCES, 0)
