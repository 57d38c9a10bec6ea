"""Replicas that move between log directories: Apache Kafka's answers and ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.protocol.api_keys import ApiKey
from tests.broker.apis.requests import batch
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.conftest import SETTINGS, Both
from tests.kafka.java_tools import KafkaPrograms
from tests.kafka.peer import Peer
from tests.kafka.requests import topic, versions
from tests.kafka.test_same_records import fetch, produce
from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

SECONDS = 30.0
# Only Kafka 3.9 and older have version 0.
VERSIONS = versions(ApiKey.ALTER_REPLICA_LOG_DIRS)


@pytest.fixture(scope="module")
def disks(
    programs: KafkaPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    """Yield both brokers, each with three log directories."""
    at = tmp_path_factory.mktemp(f"disks-{programs.version}")
    kafka = ApacheKafka(programs, at, log_dirs=directories(at / "kafka"), **SETTINGS)
    try:
        ours = BrokerProcess(
            at,
            doorkeeper_kafka_defaults="3.9" if programs.version < "4" else "4.4",
            node_id="1",
            doorkeeper_log_level="error",
            log_dirs=directories(at / "ours"),
            **SETTINGS,
        )
        both = Both(kafka, ours)
        both.wait_ready()
        yield both
        ours.close()
    finally:
        kafka.stop()


def directories(at: Path) -> str:
    return ",".join(str(at / name) for name in ("one", "two", "three"))


def alter(
    peer: Peer, version: int, path: str, name: str, *indexes: int, noted: bool = True
) -> None:
    dirs = [{"path": path, "topics": [{"name": name, "partitions": indexes}]}]
    send = peer.send if noted else peer.ask
    send(ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=dirs)


def places(peer: Peer, name: str) -> dict[str, list[tuple[int, bool]]]:
    """Return each directory's partitions, and whether each is a future replica."""
    answer = peer.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    return {
        each.log_dir: sorted(
            (row.partition_index, row.is_future_key)
            for found in each.topics
            if found.name == name
            for row in found.partitions
        )
        for each in answer.results
    }


def others(peer: Peer, name: str) -> list[str]:
    return [directory for directory, rows in places(peer, name).items() if not rows]


def wait_moved(peer: Peer, name: str, directory: str) -> None:
    end_s = time.monotonic() + SECONDS
    while places(peer, name)[directory] != [(0, False)]:
        assert time.monotonic() < end_s, places(peer, name)
        time.sleep(0.1)
    assert len(others(peer, name)) == 2


def test_a_move(disks: Both) -> None:
    def talk(peer: Peer) -> None:
        name = topic(peer, "moved")
        for _ in range(10):
            produce(peer, name, batch(b"a", b"b"))
        for version in VERSIONS:
            target = others(peer, name)[0]
            alter(peer, version, target, name, 0)
            wait_moved(peer, name, target)
            peer.send(
                ApiKey.DESCRIBE_LOG_DIRS,
                4,
                topics=[{"topic": name, "partitions": [0]}],
            )
            fetch(peer, name, 0)
            fetch(peer, name, 7)
            produce(peer, name, batch(b"more"))
            # The replica is already in the target directory.
            alter(peer, version, target, name, 0)

    disks.compare(talk)


def test_wrong_directories_and_partitions(disks: Both) -> None:
    def talk(peer: Peer) -> None:
        name = topic(peer, "stays")
        known = others(peer, name)[0]
        for version in VERSIONS:
            alter(peer, version, "/nowhere", name, 0)
            alter(peer, version, "", name, 0)
            alter(peer, version, known + "/", name, 0)
            alter(peer, version, known, name, 7)
            alter(peer, version, known, "never-was", 0)
            alter(peer, version, known, "not a name!", 0)
            alter(peer, version, known, name, -1)
            alter(peer, version, "/nowhere", "never-was", 0)
            alter(peer, version, known, name)
            peer.send(ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=[])
        long = topic(peer, "l" * 230)
        alter(peer, VERSIONS[-1], known, long, 0)
        assert len(others(peer, name)) == 2

    disks.compare(talk)


def test_a_partition_that_comes_later(disks: Both) -> None:
    def talk(peer: Peer) -> None:
        for number, directory in enumerate(sorted(places(peer, "nothing"))):
            name = f"later-{number}"
            alter(peer, VERSIONS[-1], directory, name, 0)
            topic(peer, name)
            assert places(peer, name)[directory] == [(0, False)]

    disks.compare(talk)


def test_a_partition_named_twice(disks: Both) -> None:
    def talk(peer: Peer) -> None:
        name = topic(peer, "twice")
        first, second = others(peer, name)
        named = [{"name": name, "partitions": [0, 0]}]
        dirs = [{"path": path, "topics": named} for path in (first, second)]
        peer.send(ApiKey.ALTER_REPLICA_LOG_DIRS, VERSIONS[-1], dirs=dirs)
        wait_moved(peer, name, second)

    disks.compare(talk)
