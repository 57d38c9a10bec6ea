"""Groups and their offsets with Kafka's own tools, 3.9 and 4.4."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.kafka.conftest import Tools

pytestmark = pytest.mark.kafka

GROUPS = "kafka-consumer-groups"
# Timestamps of the records in partition 0, a minute apart.
START_MS, STEP_MS, COUNT = 1_700_000_000_000, 60_000, 10


@contextmanager
def member(tools: Tools, topic: str, group: str) -> Iterator[Consumer]:
    """Yield a consumer that has joined its group and has partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": tools.bootstrap,
            "group.id": group,
            "client.id": "somebody",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    end = time.monotonic() + 20
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < end
    try:
        yield consumer
    finally:
        consumer.close()


def timed_records(tools: Tools, topic: str) -> None:
    """Create a topic of one partition with records a minute apart."""
    tools.create(topic, 1, "retention.ms=-1")
    producer = Producer({"bootstrap.servers": tools.bootstrap})
    for number in range(COUNT):
        at_ms = START_MS + number * STEP_MS
        producer.produce(topic, str(number).encode(), timestamp=at_ms)
    assert producer.flush(20) == 0


def test_a_group_is_listed_described_and_deleted(tools: Tools) -> None:
    tools.create("grouped", 2)
    tools.produce("grouped", [f"{number}" for number in range(10)])
    tools.consume("grouped", 10, group="grouped")
    of_group = ("--group", "grouped")
    assert "grouped" in tools(GROUPS, "--list").lines
    listed = tools(GROUPS, "--list", "--state").table
    assert {row["STATE"] for row in listed if row["GROUP"] == "grouped"} == {"Empty"}
    described = tools(GROUPS, "--describe", *of_group).table
    assert sum(int(row["CURRENT-OFFSET"]) for row in described) == 10
    assert {row["LAG"] for row in described} == {"0"}
    told = tools(GROUPS, "--delete-offsets", *of_group, "--topic", "grouped").out
    assert re.findall(r"grouped\s+\d\s+(\w+)", told) == ["Successful"] * 2
    told = tools(GROUPS, "--delete", *of_group)
    assert "groups ('grouped') was successful" in told.out
    assert "grouped" not in tools(GROUPS, "--list").lines
    told = tools.run(GROUPS, "--delete", *of_group)
    assert "GroupIdNotFoundException" in told.out + told.err


def test_a_group_at_work_is_described_and_left_alone(tools: Tools) -> None:
    tools.create("at-work", 2)
    of_group = ("--group", "at-work")
    with member(tools, "at-work", "at-work"):
        (row,) = tools(GROUPS, "--describe", *of_group, "--members").table
        assert (row["CLIENT-ID"], row["#PARTITIONS"]) == ("somebody", "2")
        told = tools(GROUPS, "--describe", *of_group, "--members", "--verbose").out
        # Kafka 3.9 does not print the topic.
        assert re.search(r"\(0,\s*1\)|at-work:0,1", told), told
        told = tools(GROUPS, "--describe", *of_group, "--state").out
        assert re.search(r"range\s+Stable\s+1\s*$", told, re.M), told
        told = tools.run(GROUPS, "--delete", *of_group)
        assert "GroupNotEmptyException" in told.out + told.err
        reset = ("--reset-offsets", "--to-earliest", "--execute", "--all-topics")
        told = tools.run(GROUPS, *reset, *of_group)
        assert "current state is Stable" in told.out + told.err
        topic = ("--topic", "at-work")
        told = tools(GROUPS, "--delete-offsets", *of_group, *topic).out
        assert "GroupSubscribedToTopic" in told or "Error" in told


def test_offsets_are_reset_in_every_way(tools: Tools, tmp_path: Path) -> None:
    timed_records(tools, "timed")
    tools.consume("timed", 5, group="timed")
    reset = ("--reset-offsets", "--group", "timed", "--topic", "timed")
    third = datetime.datetime.fromtimestamp(
        (START_MS + 3 * STEP_MS) / 1000, datetime.UTC
    ).strftime("%Y-%m-%dT%H:%M:%S.000Z")

    def offset() -> int:
        (row,) = tools(GROUPS, "--describe", "--group", "timed").table
        return int(row["CURRENT-OFFSET"])

    assert offset() == 5
    tools(GROUPS, *reset, "--to-earliest", "--dry-run")
    assert offset() == 5
    plan = tmp_path / "plan.csv"
    plan.write_text("timed,0,6\n")
    for how, wanted in (
        (("--to-current",), 5),
        (("--to-offset", "7"), 7),
        (("--shift-by", "-3"), 4),
        (("--shift-by", "100"), COUNT),
        (("--to-earliest",), 0),
        (("--to-latest",), COUNT),
        (("--to-datetime", third), 3),
        # All records are older than the duration, so this means the end.
        (("--by-duration", "PT1H"), COUNT),
        (("--from-file", str(plan)), 6),
    ):
        told = tools(GROUPS, *reset, *how, "--execute").out
        # Kafka 3.9 leaves out the ends of these lines, so they form no table.
        assert re.findall(r"timed\s+0\s+(\d+)", told) == [str(wanted)], how
        assert offset() == wanted, how
    told = tools(GROUPS, *reset, "--to-earliest", "--export", "--dry-run").out
    assert re.search(r"timed\"?,0,0", told)
