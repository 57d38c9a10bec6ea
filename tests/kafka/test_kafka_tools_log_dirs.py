"""Kafka's tools move replicas between a broker's directories, under load."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.kafka.conftest import Tools
from tests.kafka.java_tools import KafkaPrograms
from tests.live.broker_process import BrokerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.live]

REASSIGN = "kafka-reassign-partitions"
SECONDS = 60.0


class Disks:
    """A broker with three log directories, and Kafka's tools."""

    def __init__(self, at: Path, programs: KafkaPrograms) -> None:
        self.at = at
        self.homes = [str(at / name) for name in ("one", "two", "three")]
        self.broker = BrokerProcess(at, log_dirs=",".join(self.homes))
        self.tools = Tools(programs, self.broker, at / "one")

    def places(self, topic: str) -> dict[str, dict[str, bool]]:
        """Return each directory's partitions, and whether they are future replicas."""
        told = self.tools("kafka-log-dirs", "--describe", "--topic-list", topic)
        (broker,) = json.loads(told.lines[-1])["brokers"]
        return {
            each["logDir"]: {
                row["partition"]: row["isFuture"] for row in each["partitions"]
            }
            for each in broker["logDirs"]
        }

    def others(self, topic: str) -> list[str]:
        return [home for home, rows in self.places(topic).items() if not rows]

    def plan(self, topic: str, directory: str) -> tuple[str, str]:
        partition = {
            "topic": topic,
            "partition": 0,
            "replicas": [0],
            "log_dirs": [directory],
        }
        file = self.at / "plan.json"
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return "--reassignment-json-file", str(file)

    def execute(self, topic: str, directory: str, *options: str) -> None:
        told = self.tools(REASSIGN, "--execute", *self.plan(topic, directory), *options)
        assert "Successfully started" in told.out, told

    def wait(self, topic: str, directory: str) -> None:
        file = self.plan(topic, directory)
        until(
            lambda: (
                "completed" in self.tools(REASSIGN, "--verify", *file).out
                and self.places(topic)[directory] == {f"{topic}-0": False}
            ),
            "the move is over",
        )


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.2)


@pytest.fixture
def disks(programs: KafkaPrograms, tmp_path: Path) -> Iterator[Disks]:
    found = Disks(tmp_path, programs)
    yield found
    found.broker.close()


@contextmanager
def producing(bootstrap: str, topic: str) -> Iterator[list[int]]:
    """Produce numbers during the body, without errors; yield those acknowledged."""
    acknowledged: list[int] = []
    refused: list[Any] = []
    is_over = threading.Event()

    def work() -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 30_000,
            }
        )
        number = 0
        while not is_over.is_set():

            def note(error: Any, _: Any, number: int = number) -> None:
                (refused if error else acknowledged).append(error or number)

            producer.produce(topic, b"%d" % number, callback=note)
            producer.poll(0)
            number += 1
            if not number % 10:
                time.sleep(0.005)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()
    assert not refused


def test_a_replica_moves_while_clients_produce(disks: Disks) -> None:
    disks.tools.create("moved", 1, "segment.bytes=1100000")
    disks.tools.produce("moved", ["x" * 1000] * 2000)
    with producing(disks.tools.bootstrap, "moved") as acknowledged:
        for _ in range(2):
            target = disks.others("moved")[0]
            disks.execute("moved", target)
            disks.wait("moved", target)
    count = 2000 + len(acknowledged)
    lines = disks.tools.consume("moved", count)
    assert lines[:2000] == ["x" * 1000] * 2000
    assert list(map(int, lines[2000:])) == acknowledged == [*range(count - 2000)]


def test_a_replica_moves_on_after_a_kill(disks: Disks) -> None:
    disks.tools.create("killed", 1)
    disks.tools.produce("killed", ["x" * 10_000] * 500)
    target = disks.others("killed")[0]
    disks.execute("killed", target, "--replica-alter-log-dirs-throttle", "300000")
    until(lambda: bool(disks.places("killed")[target]), "it has begun")
    disks.broker.kill()
    disks.broker.start()
    assert disks.places("killed")[target] == {"killed-0": True}
    disks.tools(
        *("kafka-configs", "--alter", "--entity-type", "brokers"),
        *("--entity-name", "0", "--delete-config"),
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    disks.wait("killed", target)
    assert disks.tools.consume("killed", 500) == ["x" * 10_000] * 500


def test_a_move_is_cancelled(disks: Disks) -> None:
    disks.tools.create("stays", 1)
    disks.tools.produce("stays", ["x" * 10_000] * 300)
    (home,) = [it for it, rows in disks.places("stays").items() if rows]
    target = disks.others("stays")[0]
    disks.execute("stays", target, "--replica-alter-log-dirs-throttle", "1000")
    assert disks.places("stays")[target] == {"stays-0": True}
    disks.execute("stays", home)
    assert disks.places("stays")[target] == {}
    assert disks.tools.consume("stays", 300) == ["x" * 10_000] * 300
