"""Log files in both directions: Kafka's dump tool reads ours, and we read Kafka's."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.disk.files import RealStorage
from broker.log import flushing
from broker.log.log import Log
from broker.log.segments.log_config import LogConfig
from broker.log.steps import run
from broker.log.upkeep.cleaner import compaction
from broker.log.upkeep.recovery import open_log
from broker.protocol.records.batch_records import new_batch
from tests.broker.log.witness import decoded, everything, found_at
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.java_tools import KafkaPrograms

pytestmark = pytest.mark.kafka

CONFIG = LogConfig(
    segment_bytes=3000,
    index_interval_bytes=300,
    cleanup_policy=frozenset({"compact"}),
)
TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Return a compacted, closed log with all codecs, producers, epochs, tombstones."""
    directory = tmp_path_factory.mktemp("ours") / "topic-0"
    log = open_log(str(directory), CONFIG, RealStorage(), TIME_MS)
    log.append(new_batch([(TIME_MS, b"deleted", None)]), 0, TIME_MS)
    for number in range(200):
        sequence = number // 2 * 3 if number % 2 else -1
        records = [
            (
                TIME_MS + 3 * number + at,
                b"k%d" % (number % 7),
                b"v%d" % number * 10 if (number + at) % 11 else None,
            )
            for at in range(3)
        ]
        sent = new_batch(
            records,
            codec=number % 5,
            producer_id=9 if sequence >= 0 else -1,
            producer_epoch=0 if sequence >= 0 else -1,
            base_sequence=sequence,
        )
        log.append(sent, number // 50, TIME_MS)
    run(compaction(log, TIME_MS, log.log_end_offset // 2))
    flushing.settle(log)
    return log


def files(log: Log, suffix: str) -> str:
    """Return the paths of a log's files of one kind, in the format of the dump tool."""
    return ",".join(str(path) for path in sorted(Path(log.directory).glob(suffix)))


def test_kafkas_own_tool_reads_our_batches(ours: Log, programs: KafkaPrograms) -> None:
    ran = programs.succeed(
        "kafka-dump-log", "--deep-iteration", "--files", files(ours, "*.log")
    )
    batches = re.findall(r"^baseOffset.*isvalid: (\w+)$", ran.out, re.MULTILINE)
    assert set(batches) == {"true"}
    for codec in CODECS:
        assert f"compresscodec: {codec}" in ran.out
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", ran.out)
    found = [
        (int(offset), int(time))
        for offset, time in re.findall(
            r"^\| offset: (\d+) \w+: (\d+)", ran.out, re.MULTILINE
        )
    ]
    assert found == [record[:2] for record in decoded(everything(ours))]


def test_kafkas_own_tool_finds_no_fault_in_our_indexes(
    ours: Log, programs: KafkaPrograms
) -> None:
    """The tool looks up every entry in the log, and prints mismatches."""
    indexes = [files(ours, "*.index"), files(ours, "*.timeindex")]
    ran = programs.succeed("kafka-dump-log", "--files", ",".join(indexes))
    assert len(re.findall(r"^offset: \d+ position: \d+$", ran.out, re.M)) > 20
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", ran.out, re.M)) > 20
    assert not re.search("mismatch|out of order|not found", ran.out + ran.err, re.I)


def test_kafkas_own_tool_reads_our_producers(
    ours: Log, programs: KafkaPrograms
) -> None:
    """The snapshot has the last five batches of each producer, newest last."""
    last = max(Path(ours.directory).glob("*.snapshot"))
    ran = programs.succeed("kafka-dump-log", "--files", str(last))
    found = re.findall(
        r"producerId: 9 producerEpoch: 0 .*firstSequence: (\d+) lastSequence: (\d+) "
        r"lastOffset: (\d+)",
        ran.out,
    )
    assert [tuple(map(int, entry)) for entry in found] == [
        (285 + 3 * n, 287 + 3 * n, 576 + 6 * n) for n in range(5)
    ]


def test_we_read_what_a_killed_kafka_wrote(
    tmp_path: Path, programs: KafkaPrograms
) -> None:
    kafka = ApacheKafka(programs, tmp_path)
    sent = produce(kafka.bootstrap)
    kafka.kill()
    directory = str(kafka.directory / "topic-0")
    log = open_log(directory, LogConfig(), RealStorage(), TIME_MS, clean=False)
    log.check()
    assert decoded(everything(log)) == [
        (offset, *record) for offset, record in enumerate(sent)
    ]
    assert len(log.segments) > 2
    assert len(log.producers) == len(CODECS)
    middle = sent[len(sent) // 2][0]
    newer = [offset for offset, record in enumerate(sent) if record[0] >= middle]
    found = found_at(log, middle)
    assert found is not None
    assert found.offset == newer[0]
    # New records follow those of Kafka.
    appended = log.append(new_batch([(TIME_MS, b"k", b"v")]), 5, TIME_MS)
    assert appended.base_offset == len(sent)
    flushing.settle(log)


def produce(bootstrap: str) -> list[tuple[int, bytes, bytes]]:
    """Produce idempotently with every codec over some segments; return the records."""
    config = {"segment.bytes": "1048576", "index.interval.bytes": "500"}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (created,) = admin.create_topics([NewTopic("topic", 1, 1, config=config)]).values()
    created.result(30)
    sent, dice = [], random.Random(1)
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "batch.num.messages": 5,
                "log_level": 0,
            }
        )
        for at in range(300):
            time = TIME_MS + 1000 * number + at
            value = dice.randbytes(4000)
            producer.produce("topic", value, b"%d" % at, 0, timestamp=time)
            sent.append((time, b"%d" % at, value))
        assert producer.flush(30) == 0
    return sent
