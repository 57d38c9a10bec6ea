"""Consumer groups of KIP-848: Java's consumers, and the log in both directions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.group_reading import read_groups
from broker.groups.state.any_group import AnyGroup
from broker.protocol.records.batch import split_batches
from broker.protocol.records.batch_records import read_records
from broker.shards.effects import Instant
from broker.shards.shard import Shard
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.java_tools import NEWEST, KafkaPrograms
from tests.kafka.test_offsets_format import LOG, commit_as_a_member
from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

KIP_848 = {"group.protocol": "consumer"}


@pytest.fixture(scope="module")
def newest(programs_of: Callable[[str], KafkaPrograms]) -> KafkaPrograms:
    return programs_of(NEWEST)


def output(programs: KafkaPrograms, program: str, *arguments: str) -> str:
    """Run a program in its own process; return its output."""
    command = programs.command(program, *arguments)
    # Kafka 4.2 moved the class.
    moved = {"kafka.tools.DumpLogSegments": "org.apache.kafka.tools.DumpLogSegments"}
    done = subprocess.run(
        [moved.get(word, word) for word in command],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def ours(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, Path]]:
    directory = tmp_path_factory.mktemp("ours")
    broker = BrokerProcess(
        directory, offsets_topic_num_partitions="1", num_partitions="1"
    )
    yield broker, directory / "data" / LOG
    broker.close()


def test_kafka_reads_what_we_write(
    ours: tuple[BrokerProcess, Path], newest: KafkaPrograms
) -> None:
    broker, log = ours
    commit_as_a_member(broker.bootstrap, **KIP_848)
    out = output(newest, "kafka-dump-log", "--offsets-decoder", "--files", str(log))
    kinds = set(re.findall(r'key: \{"type":"(\d+)"', out))
    assert kinds >= {"1", "3", "5", "6", "7", "8"}
    assert '"instanceId":"instance"' in out
    assert "Error" not in out


def test_we_read_what_kafka_writes(newest: KafkaPrograms, tmp_path: Path) -> None:
    kafka = ApacheKafka(newest, tmp_path)
    commit_as_a_member(kafka.bootstrap, **KIP_848)
    kafka.stop()
    content = (kafka.directory / LOG).read_bytes()
    lists = (
        [(it.key, it.value) for it in read_records(header, batch)]
        for header, batch in split_batches(content)
    )
    shard = Shard[AnyGroup](0, lambda group_id: True)
    for _ in read_groups(shard, lists, lambda: Instant(0, 0), {}):
        pass
    group = shard.by_id["group"]
    assert isinstance(group, ConsumerGroup)
    group.check()
    (member,) = group.members.values()
    assert (member.instance_id, member.client_id) == ("instance", "client")
    assert member.epoch == -2
    assert member.topics == {"topic"}
    assert group.epoch == group.target_epoch.epoch == 2
    assert len(group.offsets) == 1


def test_javas_console_consumer_and_tools(
    ours: tuple[BrokerProcess, Path], newest: KafkaPrograms
) -> None:
    broker, _ = ours
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(5):
        producer.produce("java", str(number))
    assert producer.flush(20) == 0
    bootstrap = ("--bootstrap-server", broker.bootstrap)
    read = output(
        newest,
        "kafka-console-consumer",
        *(*bootstrap, "--topic", "java", "--group", "java", "--from-beginning"),
        *("--max-messages", "5", "--timeout-ms", "60000"),
        *("--command-property", "group.protocol=consumer"),
    )
    assert read.split()[:5] == list("01234")
    listed = output(
        newest,
        "kafka-consumer-groups",
        *bootstrap,
        "--list",
        "--type",
        "consumer",
        "--state",
    )
    assert re.search(r"^java +Consumer +Empty", listed, re.MULTILINE)
    described = output(
        newest, "kafka-consumer-groups", *bootstrap, "--describe", "--group", "java"
    )
    assert re.search(r"^java +java +0 +5 +5 +0", described, re.MULTILINE)
    deleted = output(
        newest, "kafka-consumer-groups", *bootstrap, "--delete", "--group", "java"
    )
    assert "successful" in deleted
