"""Kafka's own tools with three Doorkeeper brokers under one ZooKeeper."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ClusterMetadata

from experiments.processes.child import Binding
from experiments.processes.own_zookeeper import start_own_zookeeper
from experiments.processes.zookeeper import wait_for_zookeeper
from experiments.worlds.kafka import nodes
from tests.kafka.conftest import Tools
from tests.kafka.java_tools import VERSIONS, KafkaPrograms
from tests.live.broker_process import BrokerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.live]

TIMEOUT_S = 60.0
EVERYBODY = {"0", "1", "2"}


class Cluster:
    """Three brokers, with Kafka's tools for all of them."""

    def __init__(self, at: Path, programs: KafkaPrograms, stack: ExitStack) -> None:
        port = nodes.Ports.free().zookeeper
        bound = Binding(parent=os.getpid(), cpus=None, nice=0)
        started = start_own_zookeeper(at, port, bound, lambda: None)
        zookeeper = stack.enter_context(started)
        wait_for_zookeeper(zookeeper, port, TIMEOUT_S)
        self.brokers = [self._broker(at / str(it), it, port) for it in range(3)]
        for each in self.brokers:
            stack.callback(end, each)
        self.tools = Tools(programs, self.brokers[0], at / "0")
        until(self._is_whole, "all brokers know each other")

    def _is_whole(self) -> bool:
        return all(
            len(metadata(each).brokers) == len(self.brokers) for each in self.brokers
        )

    @staticmethod
    def _broker(at: Path, number: int, zookeeper: int) -> BrokerProcess:
        at.mkdir()
        return BrokerProcess(
            at,
            broker_id=str(number),
            zookeeper_connect=f"127.0.0.1:{zookeeper}",
            offsets_topic_num_partitions="3",
            offsets_topic_replication_factor="3",
            auto_leader_rebalance_enable="false",
        )

    def describe(self, topic: str) -> list[tuple[str, ...]]:
        """Return (partition, leader, replicas, isr) from the output of kafka-topics."""
        told = self.tools.run("kafka-topics", "--describe", "--topic", topic).out
        pattern = r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S+)"
        return re.findall(pattern, told)

    def leaders(self, topic: str, count: int) -> list[str]:
        """Return the leader of each partition."""
        return [leader for _, leader, _, _ in self.describe(topic)][:count]


def metadata(broker: BrokerProcess) -> ClusterMetadata:
    return AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10)


def end(broker: BrokerProcess) -> None:
    """Kill a broker: in a controlled shutdown the last one has no successor."""
    broker.kill()
    told = broker.errors().splitlines()
    # Expected warnings: replication has no throttle, and clients share a listener.
    known = ("keys that are set and have no effect", "clients may claim to be")
    assert all(any(words in line for words in known) for line in told), told


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        at = tmp_path_factory.mktemp("three")
        yield Cluster(at, programs_of(VERSIONS[0]), stack)


def create(cluster: Cluster, topic: str, *options: str) -> None:
    cluster.tools("kafka-topics", "--create", "--topic", topic, *options)
    until(lambda: everybody_knows(cluster, topic) > 0, f"everybody has {topic}")


def everybody_knows(cluster: Cluster, topic: str) -> int:
    """Return the number of partitions in all brokers' metadata, or -1 if they differ.

    A tool may ask any broker. A broker that has not yet received a change from the
    controller answers with the former state, as Kafka's brokers do.
    """
    counts = []
    for broker in cluster.brokers:
        found = metadata(broker).topics.get(topic)
        counts.append(0 if found is None else len(found.partitions))
    return counts[0] if len(set(counts)) == 1 else -1


def test_kafka_topics_places_three_replicas(cluster: Cluster) -> None:
    create(cluster, "three", "--partitions", "6", "--replication-factor", "3")
    described = cluster.describe("three")
    assert sorted(leader for _, leader, _, _ in described) == [*"001122"]
    for _, leader, replicas, isr in described:
        assert replicas.split(",")[0] == leader
        assert set(replicas.split(",")) == set(isr.split(",")) == EVERYBODY
    cluster.tools("kafka-topics", "--alter", "--topic", "three", "--partitions", "9")
    until(lambda: everybody_knows(cluster, "three") == 9, "nine partitions")
    assert len(cluster.describe("three")) == 9
    too_many = ("--partitions", "1", "--replication-factor", "4")
    refused = cluster.tools.run("kafka-topics", "--create", "--topic", "x", *too_many)
    assert refused.status == 1
    assert "replication factor" in refused.out.lower()
    cluster.tools("kafka-topics", "--delete", "--topic", "three")
    until(lambda: everybody_knows(cluster, "three") == 0, "no topic")
    assert "three" not in cluster.tools("kafka-topics", "--list").lines


def test_kafka_leader_election_gives_leadership_back(cluster: Cluster) -> None:
    create(cluster, "elected", "--replica-assignment", "2:0:1")
    cluster.brokers[2].stop()
    until(lambda: cluster.leaders("elected", 1) == ["0"], "another leads")
    cluster.brokers[2].start()
    until(lambda: in_sync(cluster, "elected") == EVERYBODY, "all in sync")
    assert cluster.leaders("elected", 1) == ["0"]
    wanted = ("--topic", "elected", "--partition", "0")
    elect = ("kafka-leader-election", "--election-type", "preferred", *wanted)
    assert "Successfully completed" in cluster.tools(*elect).out
    until(lambda: cluster.leaders("elected", 1) == ["2"], "the preferred one leads")
    assert "Valid replica already elected" in cluster.tools(*elect).out


def in_sync(cluster: Cluster, topic: str) -> set[str]:
    ((_, _, _, isr),) = cluster.describe(topic)
    return set(isr.split(","))


def test_kafka_reassign_partitions_moves_replicas_under_a_throttle(
    cluster: Cluster, tmp_path: Path
) -> None:
    create(cluster, "moved", "--replica-assignment", "0:1,1:0")
    cluster.tools.produce("moved", [f"record {number}" for number in range(100)])
    reassign = "kafka-reassign-partitions"
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    told = cluster.tools(
        *(reassign, "--generate", "--broker-list", "1,2"),
        *("--topics-to-move-json-file", str(topics)),
    ).lines
    proposed = json.loads(told[-1])
    assert {frozenset(each["replicas"]) for each in proposed["partitions"]} == {
        frozenset({1, 2})
    }
    plan.write_text(told[-1])
    file = ("--reassignment-json-file", str(plan))
    started = cluster.tools(reassign, "--execute", *file, "--throttle", "50000000").out
    assert "Successfully started partition reassignments" in started
    assert "throttle limit was set to 50000000 B/s" in started
    limits = cluster.tools("kafka-configs", "--describe", "--broker", "2").out
    assert "follower.replication.throttled.rate=50000000" in limits
    until(lambda: completed(cluster, file), "completed")
    for _, leader, replicas, isr in cluster.describe("moved"):
        assert leader in replicas.split(",")
        assert set(replicas.split(",")) == set(isr.split(",")) == {"1", "2"}
    told = cluster.tools("kafka-configs", "--describe", "--topic", "moved").out
    assert "throttled" not in told
    for each in map(str, range(3)):
        told = cluster.tools("kafka-configs", "--describe", "--broker", each).out
        assert "throttled" not in told
    values = cluster.tools.consume("moved", 100)
    assert sorted(values) == sorted(f"record {number}" for number in range(100))


def completed(cluster: Cluster, file: tuple[str, str]) -> bool:
    told = cluster.tools("kafka-reassign-partitions", "--verify", *file).out
    return told.count("is completed.") == 2


def test_kafka_consumer_groups_shows_a_group_that_has_moved(cluster: Cluster) -> None:
    create(cluster, "grouped", "--partitions", "1", "--replication-factor", "3")
    cluster.tools.produce("grouped", ["a", "b", "c"])
    assert cluster.tools.consume("grouped", 3, group="movers") == ["a", "b", "c"]
    describe = ("kafka-consumer-groups", "--describe", "--group", "movers")
    before = cluster.tools(*describe).table
    assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in before] == [("3", "0")]
    state = cluster.tools(*describe, "--state").out
    (coordinator,) = re.findall(r"127\.0\.0\.1:\d+\s+\((\d)\)", state)
    victim = cluster.brokers[int(coordinator)]
    if coordinator == "0":
        # The tools connect to broker 0 first.
        cluster.tools.bootstrap = cluster.brokers[1].bootstrap
    victim.stop()
    assert cluster.tools(*describe).table == before
    victim.start()
