"""A partition that Apache Kafka wrote, opened by Doorkeeper's log.

Kafka runs with small segments and receives records of every codec, with keys,
timestamps and an idempotent producer. Its first records are deleted, and it is stopped.
The test compares the records that Kafka's own consumer read with those in the files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.disk.files import RealStorage
from broker.log import flushing
from broker.log import log_reading as reading
from broker.log.log import Log
from broker.log.segments.log_config import LogConfig
from broker.log.upkeep.recovery import open_log
from broker.protocol.records.batch import CODEC_MASK, split_batches
from broker.protocol.records.batch_records import read_records
from tests.broker.log.witness import found_at
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.java_tools import VERSIONS, KafkaPrograms

pytestmark = pytest.mark.kafka

TOPIC = "foreign"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS, DELETED = 1000, 150
START_MS, STEP_MS = 1_700_000_000_000, 1000
SEGMENT_BYTES = 16_384

# (offset, timestamp, key, value)
Row = tuple[int, int, bytes | None, bytes | None]


class Written:
    """Partition directory of a stopped Kafka, and the records its consumer read."""

    def __init__(self, directory: Path, rows: list[Row]) -> None:
        self.directory = directory
        self.rows = rows

    def opened(self, *, clean: bool) -> Log:
        """Open the files as a log."""
        config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
        return open_log(
            str(self.directory),
            config,
            RealStorage(),
            START_MS + RECORDS * STEP_MS,
            clean=clean,
            log_start_offset=DELETED,
        )


@pytest.fixture(scope="module", params=VERSIONS)
def kafka_wrote(
    request: pytest.FixtureRequest,
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Written:
    """Return the files of each version."""
    directory = tmp_path_factory.mktemp("files")
    kafka = ApacheKafka(programs_of(request.param), directory)
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        # From 4.1 on (KIP-1030) small segments need this internal key.
        key = "segment.bytes" if request.param < "4" else "internal.segment.bytes"
        config = {key: str(SEGMENT_BYTES), "retention.ms": "-1"}
        topic = NewTopic(TOPIC, 1, 1, config=config)
        admin.create_topics([topic])[TOPIC].result(20)
        produce(kafka)
        target = TopicPartition(TOPIC, 0, DELETED)
        admin.delete_records([target])[TopicPartition(TOPIC, 0)].result(20)
        rows = consume(kafka)
    finally:
        kafka.stop()
    return Written(kafka.directory / f"{TOPIC}-0", rows)


def produce(kafka: ApacheKafka) -> None:
    """Produce to the partition, one fifth of the records with each codec."""
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "batch.num.messages": 20,
            }
        )
        share = RECORDS // len(CODECS)
        for at in range(number * share, (number + 1) * share):
            producer.produce(
                TOPIC,
                f"value {at} ".encode() * 10,
                None if at % 3 else f"key {at}".encode(),
                partition=0,
                timestamp=START_MS + at * STEP_MS,
                headers=[("number", str(at))],
            )
        assert producer.flush(20) == 0


def consume(kafka: ApacheKafka) -> list[Row]:
    """Return the records that a consumer reads from the start."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, 0, DELETED)])
    rows: list[Row] = []
    while len(rows) < RECORDS - DELETED:
        messages = consumer.consume(RECORDS - DELETED - len(rows), 10)
        assert messages, f"Kafka gave {len(rows)} records"
        for message in messages:
            assert message.error() is None, message.error()
            rows.append(
                (
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                )
            )
    consumer.close()
    return rows


def batches(log: Log) -> Iterator[tuple[int, list[Row]]]:
    """Yield codec and records of every batch, as read for a Fetch."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = reading.read(log, offset, 4096, log.log_end_offset)
        assert found is not None
        for header, batch in split_batches(found.read()):
            yield (
                header.attributes & CODEC_MASK,
                [
                    (r.offset, r.timestamp, r.key, r.value)
                    for r in read_records(header, batch)
                ],
            )
            offset = header.last_offset + 1


@pytest.mark.parametrize("clean", [True, False])
def test_every_record_is_found_where_kafka_put_it(
    kafka_wrote: Written, tmp_path: Path, clean: bool
) -> None:
    copy = tmp_path / f"{TOPIC}-0"
    shutil.copytree(kafka_wrote.directory, copy)
    log = Written(copy, []).opened(clean=clean)
    log.check()
    assert (log.log_start_offset, log.log_end_offset) == (DELETED, RECORDS)
    assert len(list(copy.glob("*.log"))) > 2
    found = list(batches(log))
    assert {codec for codec, _ in found} == set(range(len(CODECS)))
    rows = [row for _, records in found for row in records if row[0] >= DELETED]
    assert rows == kafka_wrote.rows
    flushing.settle(log)


def test_offsets_are_found_by_time_in_kafkas_indexes(
    kafka_wrote: Written, tmp_path: Path
) -> None:
    copy = tmp_path / f"{TOPIC}-0"
    shutil.copytree(kafka_wrote.directory, copy)
    log = Written(copy, []).opened(clean=True)
    for at in range(DELETED, RECORDS, 37):
        found = found_at(log, START_MS + at * STEP_MS - STEP_MS // 2)
        assert found is not None
        assert (found.offset, found.timestamp) == (at, START_MS + at * STEP_MS)
    assert found_at(log, START_MS + RECORDS * STEP_MS) is None
    assert log.epoch_end_offset(0) == (0, RECORDS)
    flushing.settle(log)


def test_the_log_goes_on_where_kafka_stopped(
    kafka_wrote: Written, tmp_path: Path
) -> None:
    copy = tmp_path / f"{TOPIC}-0"
    shutil.copytree(kafka_wrote.directory, copy)
    log = Written(copy, []).opened(clean=True)
    last = max(copy.glob("*.log")).read_bytes()
    *_, (header, batch) = split_batches(last)
    # A retry of an idempotent producer's last batch is a duplicate.
    again = bytearray(batch)
    again[:8] = bytes(8)
    appended = log.append(bytes(again), 0, START_MS)
    assert appended.base_offset == header.base_offset
    assert log.log_end_offset == RECORDS
    flushing.settle(log)
