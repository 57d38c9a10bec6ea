"""Seeks, timestamps, headers and admin calls with three clients.

Each client makes the same calls in its own API, to one broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.live.broker_process import BrokerProcess
from tests.live.group_members import wait_until

pytestmark = [
    pytest.mark.live,
    # kafka-python uses a function that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
]

# Timestamps of a topic's records, a minute apart; values are their numbers.
START_MS, STEP_MS, COUNT = 1_700_000_000_000, 60_000, 10
HEADERS = [("twice", b"1"), ("twice", b"2")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("seek"), log_retention_ms="-1")
    yield process
    process.close()


def new_topic(broker: BrokerProcess, name: str) -> str:
    """Create a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    return name


def timed_topic(broker: BrokerProcess, name: str) -> str:
    """Create a topic with records a minute apart, using librdkafka."""
    new_topic(broker, name)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        producer.produce(
            name,
            str(number),
            key=f"key {number}",
            headers=[*HEADERS, ("none", None)],
            timestamp=at_ms(number),
        )
    assert producer.flush(10) == 0
    return name


def at_ms(number: int) -> int:
    return START_MS + number * STEP_MS


def check_written(broker: BrokerProcess, topic: str) -> None:
    """Check that another client reads the written records."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Any] = []
    while len(messages) < COUNT:
        found = consumer.consume(COUNT - len(messages), 10)
        assert found, messages
        messages += found
    consumer.close()
    assert [
        (it.value(), it.key(), it.headers(), it.timestamp()[1]) for it in messages
    ] == [
        (str(n).encode(), f"key {n}".encode(), HEADERS, at_ms(n)) for n in range(COUNT)
    ]


# ---- librdkafka ---------------------------------------------------------------------


def test_confluent_kafka_seeks_and_looks_up_times(broker: BrokerProcess) -> None:
    topic = timed_topic(broker, "seek-confluent")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "seeker"})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read() -> Any:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        return message

    first = read()
    assert first.headers() == [*HEADERS, ("none", None)]
    assert (first.key(), first.timestamp()[1]) == (b"key 0", START_MS)
    for offset in (7, 2, 9, 0):
        consumer.seek(TopicPartition(topic, 0, offset))
        assert read().value() == str(offset).encode()
    for time_ms, wanted in ((at_ms(3) - 1, 3), (at_ms(4), 4), (0, 0)):
        asked = TopicPartition(topic, 0, time_ms)
        (found,) = consumer.offsets_for_times([asked], timeout=10)
        assert found.offset == wanted
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, at_ms(99))], 10)
    assert found.offset in (-1, COUNT)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, COUNT)
    consumer.close()


def test_confluent_kafkas_admin_changes_a_topic(broker: BrokerProcess) -> None:
    topic = timed_topic(broker, "admin-confluent")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3

    resource = ConfigResource("topic", topic)
    entry = ConfigEntry(
        "retention.ms", "12345678", incremental_operation=AlterConfigOpType.SET
    )
    changed = ConfigResource("topic", topic, incremental_configs=[entry])
    admin.incremental_alter_configs([changed])[resource].result(10)
    shown = admin.describe_configs([resource])[resource].result(10)
    assert shown["retention.ms"].value == "12345678"

    target = TopicPartition(topic, 0)
    for spec, wanted in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), COUNT),
        (OffsetSpec.max_timestamp(), COUNT - 1),
        (OffsetSpec.for_timestamp(at_ms(5)), 5),
    ):
        assert admin.list_offsets({target: spec})[target].result(10).offset == wanted
    cut = TopicPartition(topic, 0, 4)
    admin.delete_records([cut])[target].result(10)
    found = admin.list_offsets({target: OffsetSpec.earliest()})[target].result(10)
    assert found.offset == 4
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


# ---- kafka-python -------------------------------------------------------------------


def test_kafka_python_seeks_and_looks_up_times(broker: BrokerProcess) -> None:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Target

    topic = timed_topic(broker, "seek-python")
    target = Target(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    consumer.assign([target])
    for offset in (7, 2, 9, 0):
        consumer.seek(target, offset)
        message = next(consumer)
        assert (message.value, message.timestamp) == (
            str(offset).encode(),
            at_ms(offset),
        )
    assert [name for name, _ in message.headers] == ["twice", "twice", "none"]
    for time_ms, wanted in ((at_ms(3) - 1, 3), (at_ms(4), 4), (0, 0)):
        found = consumer.offsets_for_times({target: time_ms})[target]
        assert (found.offset, found.timestamp) == (wanted, at_ms(wanted))
    assert consumer.offsets_for_times({target: at_ms(99)})[target] is None
    consumer.seek_to_end(target)
    assert consumer.position(target) == COUNT
    consumer.seek_to_beginning(target)
    assert consumer.position(target) == 0
    consumer.close()


def test_kafka_python_writes_times_keys_and_headers(broker: BrokerProcess) -> None:
    from kafka import KafkaProducer

    topic = new_topic(broker, "times-python")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(COUNT):
        producer.send(
            topic,
            str(number).encode(),
            key=f"key {number}".encode(),
            headers=HEADERS,
            timestamp_ms=at_ms(number),
        )
    producer.close()
    check_written(broker, topic)


def test_kafka_python_produces_each_record_once_and_in_order(
    broker: BrokerProcess,
) -> None:
    from kafka import KafkaProducer

    topic = timed_topic(broker, "once-python")
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        enable_idempotence=True,
        compression_type="gzip",
        linger_ms=5,
    )
    sent = [
        producer.send(topic, str(number).encode(), key=b"k", headers=[("n", b"v")])
        for number in range(500)
    ]
    offsets = [each.get(10).offset for each in sent]
    assert offsets == list(range(COUNT, COUNT + 500))
    producer.close()


def test_kafka_pythons_admin_changes_a_topic(broker: BrokerProcess) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import NewPartitions as MorePartitions
    from kafka.admin import NewTopic as NewKafkaTopic
    from kafka.errors import TopicAlreadyExistsError

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewKafkaTopic("admin-python", 1, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewKafkaTopic("admin-python", 1, 1)])
    admin.create_partitions({"admin-python": MorePartitions(4)})
    (described,) = admin.describe_topics(["admin-python"])
    assert len(described["partitions"]) == 4
    admin.delete_topics(["admin-python"])
    wait_until(lambda: "admin-python" not in admin.list_topics())
    admin.close()


# ---- aiokafka -----------------------------------------------------------------------


def test_aiokafka_seeks_and_looks_up_times(broker: BrokerProcess) -> None:
    topic = timed_topic(broker, "seek-aio")
    asyncio.run(asyncio.wait_for(_seek_with_aiokafka(broker.bootstrap, topic), 60))


async def _seek_with_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Target

    target = Target(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        consumer.assign([target])
        for offset in (7, 2, 9, 0):
            consumer.seek(target, offset)
            message = await consumer.getone()
            assert (message.value, message.timestamp) == (
                str(offset).encode(),
                at_ms(offset),
            )
        assert [name for name, _ in message.headers] == ["twice", "twice", "none"]
        for time_ms, wanted in ((at_ms(3) - 1, 3), (at_ms(4), 4), (0, 0)):
            found = (await consumer.offsets_for_times({target: time_ms}))[target]
            assert (found.offset, found.timestamp) == (wanted, at_ms(wanted))
        assert (await consumer.offsets_for_times({target: at_ms(99)}))[target] is None
        assert await consumer.end_offsets([target]) == {target: COUNT}
        assert await consumer.beginning_offsets([target]) == {target: 0}
    finally:
        await consumer.stop()


def test_aiokafka_writes_times_keys_and_headers(broker: BrokerProcess) -> None:
    topic = new_topic(broker, "times-aio")
    asyncio.run(asyncio.wait_for(_write_with_aiokafka(broker.bootstrap, topic), 60))
    check_written(broker, topic)


async def _write_with_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number in range(COUNT):
        await producer.send(
            topic,
            str(number).encode(),
            key=f"key {number}".encode(),
            headers=HEADERS,
            timestamp_ms=at_ms(number),
        )
    await producer.stop()


def test_aiokafkas_admin_changes_a_topic(broker: BrokerProcess) -> None:
    topic = timed_topic(broker, "admin-aio")
    asyncio.run(asyncio.wait_for(_admin_with_aiokafka(broker.bootstrap, topic), 60))


async def _admin_with_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import TopicPartition as Target
    from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
    from aiokafka.admin import NewPartitions as MorePartitions
    from aiokafka.admin.config_resource import ConfigResource as Resource
    from aiokafka.admin.config_resource import ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({topic: MorePartitions(3)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        resource = Resource(
            ConfigResourceType.TOPIC, topic, configs={"retention.ms": "12345678"}
        )
        await admin.alter_configs([resource])
        (answer,) = await admin.describe_configs([resource])
        configs = {row[0]: row[1] for row in answer.resources[0][4]}
        assert configs["retention.ms"] == "12345678"
        cut = {Target(topic, 0): RecordsToDelete(before_offset=4)}
        assert await admin.delete_records(cut) == {Target(topic, 0): 4}
        assert topic in await admin.list_topics()
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()
