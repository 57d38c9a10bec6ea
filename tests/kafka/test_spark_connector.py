"""Spark's own Kafka source and sink (``spark-sql-kafka-0-10``) with our broker.

One Spark program (``spark_program.py``) runs all steps. The tests compare its results
with the written records, and read its output with another client.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from experiments.worlds.kafka.apache_kafka import JARS
from spark_analysis.recordings.java import NoJava, java_home
from tests.kafka.spark_program import BATCH, ROWS, START_MS, STEP_MS
from tests.live.broker_process import BrokerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PARTITIONS = {"source": 2, "copied": 2, "timed": 1}
TIMED = 8
PROGRAM = Path(__file__).with_name("spark_program.py")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("spark-broker"), log_retention_ms="-1"
    )
    yield process
    process.close()


@pytest.fixture(scope="module")
def seen(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Return the results of the program."""
    jars = [str(jar) for jar in sorted((JARS / "spark-kafka").glob("*.jar"))]
    if not any("spark-sql-kafka" in jar for jar in jars):
        pytest.skip("Spark's Kafka connector is not here: `make kafka-tools`")
    try:
        java = str(java_home(os.environ))
    except NoJava as none:
        pytest.skip(f"Spark cannot run: {none}")
    create_topics(broker)
    directory = tmp_path_factory.mktemp("spark")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), broker.bootstrap, str(directory), *jars],
        env={**os.environ, "JAVA_HOME": java, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-10_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def create_topics(broker: BrokerProcess) -> None:
    """Create the topics; fill ``timed``, whose records have explicit timestamps."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = [NewTopic(name, count, 1) for name, count in PARTITIONS.items()]
    for created in admin.create_topics(new).values():
        created.result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for minute in range(TIMED):
        at_ms = START_MS + minute * STEP_MS
        producer.produce("timed", str(minute), timestamp=at_ms)
    assert producer.flush(20) == 0


def values(rows: list[list[Any]]) -> list[str]:
    return [value for _, _, _, value, _, _ in rows]


def test_spark_reads_back_its_writes(seen: dict[str, Any]) -> None:
    rows = seen["everything"]
    assert sorted(
        (key, value, headers) for _, _, key, value, headers, _ in rows
    ) == sorted(
        (f"key {number}", f"value {number}", [["of", str(number)]])
        for number in range(ROWS)
    )
    for partition in range(PARTITIONS["source"]):
        offsets = [row[1] for row in rows if row[0] == partition]
        assert offsets == list(range(len(offsets)))


def test_spark_reads_between_offsets(seen: dict[str, Any]) -> None:
    assert [row[:2] for row in seen["a part"]] == (
        [[0, offset] for offset in range(3, 7)] + [[1, offset] for offset in range(5)]
    )


def test_spark_reads_between_times(seen: dict[str, Any]) -> None:
    assert values(seen["from a time"]) == ["4", "5", "6", "7"]
    assert [row[5] for row in seen["from a time"]] == [
        START_MS + minute * STEP_MS for minute in range(4, 8)
    ]
    assert values(seen["between times"]) == ["2", "3", "4"]


def test_a_stream_goes_on_where_its_checkpoint_ends(
    seen: dict[str, Any], broker: BrokerProcess
) -> None:
    assert sum(seen["first"]) == ROWS
    assert len(seen["first"]) >= ROWS // BATCH + 1
    assert max(seen["first"]) <= BATCH
    assert sum(seen["nothing was lost"]) == 30
    assert seen["nothing new"] == []
    assert sorted(copied(broker)) == sorted(
        (f"key {number}", f"value {number}", str(number)) for number in range(ROWS + 30)
    )


def copied(broker: BrokerProcess) -> list[tuple[str, str, str]]:
    """Return all records of ``copied``, read with another client."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    partitions = PARTITIONS["copied"]
    consumer.assign([TopicPartition("copied", each, 0) for each in range(partitions)])
    found, ends = [], 0
    while ends < partitions:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None:
            ends += 1
            continue
        ((name, header),) = message.headers()
        assert name == "of"
        row = (message.key(), message.value(), header)
        found.append(tuple(part.decode() for part in row))
    consumer.close()
    return found
