"""Real clients with a real broker process, under each of four schedulers.

Each client creates a topic, produces with every codec, and reads all records back:
kafka-python and aiokafka under two schedulers, under the other two in slow tests.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.protocol.records.batch import CODEC_MASK, split_batches
from tests.live.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.live,
    # kafka-python uses a function that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
]

SCHEDULERS = ("fifo", "planes", "priority", "wfq")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
RECORDS = 20

under_all = pytest.mark.parametrize("broker", SCHEDULERS, indirect=True, scope="module")
under_two = pytest.mark.parametrize(
    "broker",
    [
        *SCHEDULERS[:2],
        *(pytest.param(it, marks=pytest.mark.slow) for it in SCHEDULERS[2:]),
    ],
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp(request.param)
    process = BrokerProcess(directory, doorkeeper_scheduler=request.param)
    yield process
    process.close()


def wanted(codec: str) -> list[bytes]:
    """Return the values for one codec: small ones and one of 10 kB."""
    return [f"{codec} {number} ".encode() * 3 for number in range(RECORDS)] + [
        codec.encode() * 2500
    ]


EVERYTHING = sorted(value for codec in CODECS for value in wanted(codec))


def check_batches(broker: BrokerProcess, topic: str) -> None:
    """Check that every codec was used, by idempotent producers.

    A client that considers the broker too old silently uses neither.
    """
    headers = [
        header
        for file in broker.segment_files(topic)
        for header, _ in split_batches(file.read_bytes())
    ]
    assert {header.attributes & CODEC_MASK for header in headers} == set(range(5))
    assert all(header.producer_id >= 0 for header in headers)


@under_all
def test_confluent_kafka_reads_back_what_it_produced(broker: BrokerProcess) -> None:
    settings = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(settings)
    for created in admin.create_topics([NewTopic("confluent", PARTITIONS)]).values():
        created.result(10)
    for codec in CODECS:
        _produce(
            {**settings, "compression.type": codec, "enable.idempotence": True},
            wanted(codec),
        )
    consumer = Consumer({**settings, "group.id": "g", "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition("confluent", i, 0) for i in range(PARTITIONS)])
    found = _consume(consumer, len(EVERYTHING))
    assert sorted(found) == EVERYTHING
    assert consumer.get_watermark_offsets(TopicPartition("confluent", 0), 10)[0] == 0
    consumer.close()
    check_batches(broker, "confluent")


def _produce(settings: dict[str, Any], values: list[bytes]) -> None:
    producer = Producer(settings)
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(values):
        producer.produce(
            "confluent", value, partition=number % PARTITIONS, on_delivery=delivered
        )
    assert producer.flush(10) == 0
    assert failures == []


def _consume(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    end_s = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end_s:
        for message in consumer.consume(500, timeout=0.2):
            assert message.error() is None, message.error()
            found.append(message.value())
    return found


@under_two
def test_kafka_python_reads_back_what_it_produced(broker: BrokerProcess) -> None:
    import kafka
    from kafka.admin import NewTopic as NewKafkaTopic

    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewKafkaTopic("python", PARTITIONS, 1)])
    admin.close()
    for codec in CODECS:
        producer = kafka.KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        sent = [
            producer.send("python", value, partition=number % PARTITIONS)
            for number, value in enumerate(wanted(codec))
        ]
        for each in sent:
            each.get(10)
        producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    targets = [kafka.TopicPartition("python", index) for index in range(PARTITIONS)]
    consumer.assign(targets)
    found: list[bytes] = []
    end_s = time.monotonic() + 20
    while len(found) < len(EVERYTHING) and time.monotonic() < end_s:
        for messages in consumer.poll(timeout_ms=200).values():
            found += [message.value for message in messages]
    assert sorted(found) == EVERYTHING
    assert sum(consumer.end_offsets(targets).values()) == len(EVERYTHING)
    consumer.close()
    check_batches(broker, "python")


@under_two
def test_aiokafka_reads_back_what_it_produced(broker: BrokerProcess) -> None:
    found = asyncio.run(asyncio.wait_for(_with_aiokafka(broker.bootstrap), 30))
    assert sorted(found) == EVERYTHING
    check_batches(broker, "aio")


async def _with_aiokafka(bootstrap: str) -> list[bytes]:
    import aiokafka
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin import NewTopic as NewAioTopic

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewAioTopic("aio", PARTITIONS, 1)])
    await admin.close()
    for codec in CODECS:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        await producer.start()
        for number, value in enumerate(wanted(codec)):
            await producer.send("aio", value, partition=number % PARTITIONS)
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition("aio", i) for i in range(PARTITIONS)])
    found: list[bytes] = []
    while len(found) < len(EVERYTHING):
        for messages in (await consumer.getmany(timeout_ms=200)).values():
            found += [message.value for message in messages]
    await consumer.stop()
    return found


@under_all
def test_a_topic_is_created_by_whoever_first_produces_to_it(
    broker: BrokerProcess,
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("by-itself", b"x")
    assert producer.flush(10) == 0


@under_all
def test_other_connections_do_not_notice_one_that_sends_garbage(
    broker: BrokerProcess,
) -> None:
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">ihhih", 10, 0, 9, 1, -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        b"\xff" * 64,
    ):
        with socket.create_connection(("127.0.0.1", broker.port), 5) as client:
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.list_topics(timeout=10).brokers
