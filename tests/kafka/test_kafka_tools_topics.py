"""Topics, configs and the cluster with Kafka's own tools, 3.9 and 4.4."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.kafka.conftest import Tools
from tests.kafka.java_tools import KafkaPrograms

pytestmark = pytest.mark.kafka


def test_kafka_metadata_quorum_describes_the_only_voter(tools: Tools) -> None:
    command = ("kafka-metadata-quorum", "--bootstrap-server", tools.bootstrap)
    told = tools.offline(*command, "describe", "--status").lines
    found = dict(re.split(r":\s+", line, maxsplit=1) for line in told)
    assert found["LeaderId"] == "0"
    assert int(found["LeaderEpoch"]) > 0
    assert int(found["HighWatermark"]) > 0
    assert found["MaxFollowerLag"] == "0"
    assert '"id": 0' in found["CurrentVoters"] or found["CurrentVoters"] == "[0]"
    assert found["CurrentObservers"] == "[]"
    told = tools.offline(*command, "describe", "--replication").lines
    assert [line.split()[-1] for line in told] == ["Status", "Leader"]


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
    assert [line.split()[0] for line in own if "sensitive=" in line] == [
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
    assert "sensitive=" not in tools("kafka-configs", *of_topic, "--describe").out
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


@pytest.mark.parametrize(
    ("kind", "key", "value", "bad"),
    [
        ("groups", "consumer.session.timeout.ms", "50000", "44999"),
        ("client-metrics", "interval.ms", "60000", "99"),
    ],
)
def test_kafka_configs_describes_and_alters_groups_and_client_metrics(
    tools: Tools, programs: KafkaPrograms, kind: str, key: str, value: str, bad: str
) -> None:
    if kind == "groups" and programs.version < "4":
        pytest.skip("kafka-configs of Kafka 3.9 has no entities of type groups")
    resource = ("kafka-configs", "--entity-type", kind, "--entity-name", "by-tools")
    tools(*resource, "--alter", "--add-config", f"{key}={value}")
    assert f"{key}={value} sensitive=false" in tools(*resource, "--describe").out
    refused = tools.run(*resource, "--alter", "--add-config", f"{key}={bad}")
    assert refused.status == 1
    assert key in refused.err + refused.out
    tools(*resource, "--alter", "--delete-config", key)
    assert f"{key}={value}" not in tools(*resource, "--describe").out


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
    for line in ("Produce(0): 0 to 13", "Fetch(1): 0 to 18", "Metadata(3): 0 to 13"):
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


def test_kafka_topics_picks_what_it_describes(tools: Tools) -> None:
    created = ("kafka-topics", "--create", "--topic", "picky", "--partitions", "2")
    tools(*created, "--config", "cleanup.policy=compact")
    tools(*created, "--if-not-exists")
    assigned = ("--topic", "assigned", "--replica-assignment", "0,0,0")
    tools("kafka-topics", "--create", *assigned)
    describe = ("kafka-topics", "--describe")
    (head, *rows) = tools(*describe, "--topic", "assigned").lines
    assert len(rows) == 3
    (identity,) = re.findall(r"TopicId: (\S+)", head)
    assert head in tools(*describe, "--topic-id", identity).lines
    (only,) = tools(*describe, "--topics-with-overrides", "--topic", "picky").lines
    assert "cleanup.policy=compact" in only
    for kind in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        rows = tools(*describe, f"--{kind}-partitions", "--topic", "picky").lines
        assert len(rows) == (2 if kind == "at-min-isr" else 0)
    assert (
        "__consumer_offsets"
        not in tools("kafka-topics", "--list", "--exclude-internal").lines
    )
    few = ("--partition-size-limit-per-response", "1")
    assert len(tools(*describe, "--topic", "assigned", *few).lines) == 4


def test_kafka_configs_sets_defaults_of_all_brokers(tools: Tools) -> None:
    every = ("--entity-type", "brokers", "--entity-default")
    change = ("kafka-configs", *every, "--alter")
    tools(*change, "--add-config", "log.retention.ms=123456,message.max.bytes=2000000")
    told = tools("kafka-configs", *every, "--describe").out
    assert "log.retention.ms=123456" in told
    tools.create("inherits", 1)
    of_topic = ("--entity-type", "topics", "--entity-name", "inherits")
    told = tools("kafka-configs", *of_topic, "--describe", "--all").out
    assert re.search(
        r"retention.ms=123456 .*DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms", told
    )
    tools(*change, "--delete-config", "log.retention.ms,message.max.bytes")
    assert "log.retention.ms" not in tools("kafka-configs", *every, "--describe").out
    fixed = tools.run(*change, "--add-config", "node.id=7")
    assert fixed.status == 1
    assert "node.id" in fixed.out + fixed.err


def test_kafka_reassign_partitions_finds_all_in_place(
    tools: Tools, tmp_path: Path
) -> None:
    tools.create("placed", 2)
    reassign = "kafka-reassign-partitions"
    assert "No partition reassignments found." in tools(reassign, "--list").out
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": "placed"}]}))
    told = tools(
        *(reassign, "--generate", "--broker-list", "0"),
        *("--topics-to-move-json-file", str(file)),
    ).lines
    plan = json.loads(told[-1])
    assert {(each["partition"], *each["replicas"]) for each in plan["partitions"]} == {
        (0, 0),
        (1, 0),
    }
    file.write_text(told[-1])
    execute = ("--reassignment-json-file", str(file))
    told = tools(reassign, "--execute", *execute).out
    assert "Successfully started partition reassignment" in told
    told = tools(reassign, "--verify", *execute).out
    assert told.count("is completed.") == 2
