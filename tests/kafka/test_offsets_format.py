"""``__consumer_offsets``: Kafka's tool reads our files, and we read Kafka's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.groups.group_reading import read_groups
from broker.groups.state.group import Group
from broker.groups.state.group_records import (
    GroupKey,
    OffsetKey,
    read_group,
    read_key,
    read_offset,
)
from broker.protocol.records.batch import split_batches
from broker.protocol.records.batch_records import read_records
from broker.shards.effects import Instant
from broker.shards.shard import Shard
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.java_tools import KafkaPrograms
from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

LOG = "__consumer_offsets-0/00000000000000000000.log"


def commit_as_a_member(bootstrap: str, **settings: str) -> None:
    """Join a group as a static member, commit offset 7 with metadata, do not leave."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for _ in range(10):
        producer.produce("topic", b"value")
    assert producer.flush(20) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "group",
            "group.instance.id": "instance",
            "client.id": "client",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe(["topic"])
    while consumer.poll(0.5) is None:
        pass
    consumer.commit(offsets=[TopicPartition("topic", 0, 7)], asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def our_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the offsets topic that our broker wrote."""
    directory = tmp_path_factory.mktemp("ours")
    broker = BrokerProcess(directory, offsets_topic_num_partitions="1")
    commit_as_a_member(broker.bootstrap)
    broker.close()
    return directory / "data" / LOG


def test_kafkas_own_tool_reads_what_we_write(
    our_log: Path, programs: KafkaPrograms
) -> None:
    ran = programs.succeed(
        "kafka-dump-log", "--offsets-decoder", "--files", str(our_log)
    )
    found = [
        (json.loads(key), json.loads(payload))
        for key, payload in re.findall(r"key: (\{.*\}) payload: (\{.*\})", ran.out)
    ]
    groups = [value["data"] for key, value in found if key["type"] == "2"]
    offsets = [value["data"] for key, value in found if key["type"] == "1"]
    (member,) = groups[0]["members"]
    assert (groups[0]["protocolType"], groups[0]["generation"]) == ("consumer", 1)
    assert (groups[0]["protocol"], groups[0]["leader"]) == ("range", member["memberId"])
    assert (member["groupInstanceId"], member["clientId"]) == ("instance", "client")
    assert member["subscription"]["topics"] == ["topic"]
    assert member["assignment"]["assignedPartitions"] == [
        {"topic": "topic", "partitions": [0]}
    ]
    assert (offsets[-1]["offset"], offsets[-1]["metadata"]) == (7, "")


def pieces(log: Path) -> Iterator[list[Any]]:
    """Yield the records of a log file, a batch at a time."""
    for header, batch in split_batches(log.read_bytes()):
        yield read_records(header, batch)


def test_a_group_that_kafka_wrote_is_read(
    tmp_path: Path, programs: KafkaPrograms
) -> None:
    kafka = ApacheKafka(programs, tmp_path)
    commit_as_a_member(kafka.bootstrap)
    kafka.stop()
    log = kafka.directory / LOG
    for record in (record for piece in pieces(log) for record in piece):
        key = read_key(record.key)
        if record.value is not None and isinstance(key, OffsetKey):
            read_offset(record.value)
        elif record.value is not None and isinstance(key, GroupKey):
            read_group(record.value)
    shard = Shard[Group](0, lambda group_id: True)
    lists = ([(it.key, it.value) for it in piece] for piece in pieces(log))
    for _ in read_groups(shard, lists, lambda: Instant(0, 0), {}):
        pass
    group = shard.by_id["group"]
    group.check()
    (member,) = group.roster
    assert (group.state.value, group.generation) == ("Stable", 1)
    assert (member.instance_id, member.client_id) == ("instance", "client")
    assert group.topics == frozenset({"topic"})
    (target,) = group.offsets
    assert tuple(target) == ("topic", 0)
    commit = group.offsets.get(target)
    assert commit is not None
    assert (commit.offset, commit.metadata) == (7, "")
