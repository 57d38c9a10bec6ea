"""Transactions that Apache Kafka wrote, read from its files by Doorkeeper's log.

Producers commit and abort in turn, also to a compacted topic, and one transaction is
open when Kafka is killed or stopped. The test compares the records of Kafka's
``read_committed`` consumer with those of the same algorithm on Doorkeeper's log: after
an orderly stop, after a kill, and without Kafka's lists of aborted transactions.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.disk.files import RealStorage
from broker.log.log import Log
from broker.log.segments.log_config import LogConfig
from broker.log.segments.transaction_index import AbortedTransaction
from broker.log.steps import run
from broker.log.upkeep.cleaner import compaction
from broker.log.upkeep.recovery import open_log
from broker.protocol.records.batch import parse_header
from broker.protocol.records.batch_records import iter_records
from broker.transactions.transaction import TransactionValue
from broker.transactions.transaction_records import (
    read_name,
    read_value,
    transaction_record,
)
from broker.transactions.transaction_state import IDLE, TransactionState
from tests.broker.log.test_transactions import committed
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.java_tools import VERSIONS, KafkaPrograms

pytestmark = pytest.mark.kafka

TOPIC = "foreign"
SEGMENT_BYTES = 16_384
TRANSACTIONS = 60
NOW_MS = 1_800_000_000_000

Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture(scope="module", params=VERSIONS)
def kafka_wrote(
    request: pytest.FixtureRequest,
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[Row]]:
    """Return the partition's directory and the records of Kafka's consumer."""
    directory = tmp_path_factory.mktemp("files")
    kafka = ApacheKafka(programs_of(request.param), directory)
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        key = "segment.bytes" if request.param < "4" else "internal.segment.bytes"
        topic = NewTopic(TOPIC, 1, 1, config={key: str(SEGMENT_BYTES)})
        admin.create_topics([topic])[TOPIC].result(20)
        open_one = produce(kafka)
        rows = consume(kafka)
    finally:
        kafka.stop()
    del open_one
    return kafka.directory / f"{TOPIC}-0", rows


def produce(kafka: ApacheKafka) -> Producer:
    """Produce with two producers in turn; leave a third one's transaction open."""
    servers = {"bootstrap.servers": kafka.bootstrap}
    first, second, third = (
        Producer({**servers, "transactional.id": name}) for name in ("a", "b", "c")
    )
    for producer in (first, second, third):
        producer.init_transactions(30)
    second.begin_transaction()
    for number in range(TRANSACTIONS):
        first.begin_transaction()
        send(first, number, b"one")
        send(second, number, b"two")
        (first.commit_transaction if number % 3 else first.abort_transaction)(30)
        if number % 7 == 6:
            (second.abort_transaction if number % 2 else second.commit_transaction)(30)
            second.begin_transaction()
    second.abort_transaction(30)
    third.begin_transaction()
    send(third, 0, b"open")
    plain = Producer(servers)
    send(plain, 0, b"plain behind it")
    return third


def send(producer: Producer, number: int, value: bytes) -> None:
    for at in range(3):
        producer.produce(
            TOPIC, value * 40 + b" %d %d" % (number, at), b"k%d" % (number % 5 + at)
        )
    assert producer.flush(20) == 0


def consume(kafka: ApacheKafka) -> list[Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    rows: list[Row] = []
    while message := consumer.poll(20):
        if message.error() is not None:
            # The last stable offset.
            break
        rows.append((message.offset(), message.key(), message.value()))
    consumer.close()
    assert len(rows) > TRANSACTIONS
    return rows


def opened(directory: Path, *, clean: bool, compacts: bool = False) -> Log:
    policy = frozenset({"compact"} if compacts else {"delete"})
    config = LogConfig(
        segment_bytes=SEGMENT_BYTES, retention_ms=-1, cleanup_policy=policy
    )
    return open_log(str(directory), config, RealStorage(), NOW_MS, clean=clean)


def aborted(log: Log) -> list[AbortedTransaction]:
    return [each for segment in log.segments for each in segment.aborted.entries]


@pytest.mark.parametrize("clean", [True, False])
def test_committed_records_are_those_that_kafkas_consumer_gets(
    kafka_wrote: tuple[Path, list[Row]], tmp_path: Path, clean: bool
) -> None:
    directory, rows = kafka_wrote
    copy = tmp_path / directory.name
    shutil.copytree(directory, copy)
    log = opened(copy, clean=clean)
    log.check()
    stable = log.stable_below(log.log_end_offset)
    # The open transaction and a plain batch after it.
    assert log.log_end_offset - stable == 6
    assert committed(log, 0, stable) == rows


def test_aborted_transactions_are_found_again_as_kafka_listed_them(
    kafka_wrote: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    directory, _ = kafka_wrote
    listed, found = tmp_path / "listed" / "t-0", tmp_path / "found" / "t-0"
    shutil.copytree(directory, listed)
    shutil.copytree(directory, found, ignore=shutil.ignore_patterns("*.txnindex"))
    assert aborted(opened(found, clean=False)) == aborted(opened(listed, clean=True))


def test_compaction_keeps_the_last_committed_record_of_each_key(
    kafka_wrote: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    directory, rows = kafka_wrote
    copy = tmp_path / directory.name
    shutil.copytree(directory, copy)
    log = opened(copy, clean=True, compacts=True)
    stable = log.stable_below(log.log_end_offset)
    run(compaction(log, NOW_MS, stable))
    assert len(log.segments) > 1
    newest = {key: (offset, value) for offset, key, value in rows}
    left = committed(log, 0, stable)
    assert {key: (offset, value) for offset, key, value in left} == newest
    assert len(left) < len(rows)


def test_the_coordinators_records_are_read(
    kafka_wrote: tuple[Path, list[Row]],
) -> None:
    directory, _ = kafka_wrote
    found: dict[str, TransactionValue] = {}
    for path in sorted(directory.parent.glob("__transaction_state-*/*.log")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            header = parse_header(content, at)
            batch = memoryview(content)[at : at + header.size]
            for record in iter_records(header, batch):
                assert record.key is not None
                name = read_name(record.key)
                assert name is not None
                assert record.value is not None
                found[name] = read_value(record.value)
                # Kafka 4 formats its disk with transaction.version 2.
                level = 2 if record.value[:2] == b"\0\1" else 0
                again = transaction_record(name, found[name], level)
                assert again == (record.key, record.value)
            at += header.size
    assert found.keys() == {"a", "b", "c"}
    assert found["a"].state in IDLE
    assert found["b"].state is TransactionState.COMPLETE_ABORT
    assert found["c"].state is TransactionState.ONGOING
    assert found["c"].partitions == {(TOPIC, 0)}
