"""Topics, configs and cluster by Kafka's own tools, 3.9 and 4.1, against our broker."""

from __future__ import annotations

import json
import re

import pytest

from tests.kafka.conftest import Tools

pytestmark = pytest.mark.kafka


def test_kafka_topics_creates_describes_grows_and_deletes(tools: Tools) -> None:
    create = ("kafka-topics", "--create", "--topic", "life")
    told = tools(*create, "--partitions", "3", "--config", "retention.ms=100000")
    assert "Created topic life." in told.lines
    again = tools.run(*create)
    assert again.status == 1
    assert "topic 'life' already exists" in again.out
    tools("kafka-topics", "--alter", "--topic", "life", "--partitions", "5")
    fewer = tools.run("kafka-topics", "--alter", "--topic", "life", "--partitions", "2")
    assert fewer.status == 1
    assert "5 partition" in fewer.out
    assert "life" in tools("kafka-topics", "--list").lines

    head, *partitions = tools("kafka-topics", "--describe", "--topic", "life").lines
    assert "PartitionCount: 5\tReplicationFactor: 1" in head
    assert "retention.ms=100000" in head
    assert [
        re.findall(
            r"Partition: (\d+)\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)", line
        )
        for line in partitions
    ] == [[(str(index), "0", "0", "0")] for index in range(5)]

    tools("kafka-topics", "--delete", "--topic", "life")
    assert "life" not in tools("kafka-topics", "--list").lines
    assert tools.run("kafka-topics", "--describe", "--topic", "life").status == 1


def test_kafka_configs_describes_and_alters_a_topic(tools: Tools) -> None:
    tools.create("configured", 1)
    of_topic = ("--entity-type", "topics", "--entity-name", "configured")
    tools(
        *("kafka-configs", *of_topic, "--alter"),
        *("--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]"),
    )
    own = tools("kafka-configs", *of_topic, "--describe").lines
    assert [line.split()[0] for line in own[1:]] == [
        "cleanup.policy=compact,delete",
        "retention.ms=5000",
    ]
    every = tools("kafka-configs", *of_topic, "--describe", "--all").out
    assert "retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in every
    assert "segment.bytes=1073741824" in every
    tools(
        *("kafka-configs", *of_topic, "--alter"),
        *("--delete-config", "retention.ms,cleanup.policy"),
    )
    assert len(tools("kafka-configs", *of_topic, "--describe").lines) == 1
    bad = tools.run(
        *("kafka-configs", *of_topic, "--alter", "--add-config", "retention.ms=soon")
    )
    assert bad.status == 1
    assert "retention.ms" in bad.err + bad.out


def test_kafka_configs_describes_and_alters_a_broker(tools: Tools) -> None:
    of_broker = ("--entity-type", "brokers", "--entity-name", "0")
    change = ("kafka-configs", *of_broker, "--alter")
    tools(*change, "--add-config", "max.connections.per.ip=77")
    assert (
        "max.connections.per.ip=77"
        in tools("kafka-configs", *of_broker, "--describe").out
    )
    tools(*change, "--delete-config", "max.connections.per.ip")
    every = tools("kafka-configs", *of_broker, "--describe", "--all").out
    assert "max.connections.per.ip=2147483647" in every
    assert "num.io.threads=8" in every


def test_kafka_log_dirs_shows_sizes(tools: Tools) -> None:
    tools.create("sized", 2)
    tools.produce("sized", ["some text"] * 10)
    told = tools("kafka-log-dirs", "--describe", "--topic-list", "sized")
    described = json.loads(told.lines[-1])
    (broker,) = described["brokers"]
    (directory,) = broker["logDirs"]
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert (broker["broker"], directory["error"]) == (0, None)
    assert sizes == tools.broker_file_sizes("sized")
    assert sum(sizes.values()) > 10 * len("some text")


def test_kafka_broker_api_versions_and_cluster_id(tools: Tools) -> None:
    told = tools("kafka-broker-api-versions").out
    for line in ("Produce(0): 0 to 11", "Fetch(1): 0 to 17", "Metadata(3): 0 to 12"):
        assert line in told
    assert "JoinGroup(11): 0 to 9" in told
    told = tools("kafka-cluster", "cluster-id").out
    assert re.search(r"Cluster ID: [\w-]{22}$", told.strip())


def test_kafka_leader_election_has_nothing_to_do(tools: Tools) -> None:
    tools.create("elected", 1)
    told = tools(
        *("kafka-leader-election", "--election-type", "preferred"),
        *("--topic", "elected", "--partition", "0"),
    )
    assert "Valid replica already elected for partitions elected-0" in told.out
