"""Our client and librdkafka with one live broker; each reads the other's records."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.consumer.consumer import open_consumer
from broker.client.producer.producer import open_producer
from tests.client.interoperation import (
    CODECS,
    PARTITIONS,
    keyed_records,
    read_with_ours,
    write_with_ours,
)
from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("client"))
    yield process
    process.close()


def create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        created.result(10)


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_we_wrote(broker: BrokerProcess, codec: str) -> None:
    topic = f"ours-{codec}"
    create(broker, topic)
    records = keyed_records(random.Random(1))
    trio.run(write_with_ours, broker.bootstrap, topic, codec, records)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found = []
    end_s = time.monotonic() + 20
    while len(found) < len(records) and time.monotonic() < end_s:
        for message in consumer.consume(500, timeout=0.2):
            assert message.error() is None, message.error()
            headers = [*(message.headers() or ())]
            found.append((message.key(), message.value(), headers))
    consumer.close()
    assert sorted(found) == sorted(records)


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_librdkafka_wrote_and_agree_on_partitions(
    broker: BrokerProcess, codec: str
) -> None:
    theirs, ours = f"theirs-{codec}", f"again-{codec}"
    create(broker, theirs)
    create(broker, ours)
    records = keyed_records(random.Random(2))
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": codec,
            # In librdkafka, the name of Java's partitioner.
            "partitioner": "murmur2_random",
        }
    )
    for key, value, headers in records:
        producer.produce(theirs, value, key, headers=headers)
    assert producer.flush(20) == 0
    trio.run(write_with_ours, broker.bootstrap, ours, codec, records)
    count = len(records)
    by_them = trio.run(read_with_ours, broker.bootstrap, theirs, count)
    by_us = trio.run(read_with_ours, broker.bootstrap, ours, count)
    assert by_them == by_us
    assert sorted(each[1:] for each in by_us) == sorted(records)


def test_a_group_of_both_clients_shares_the_partitions(broker: BrokerProcess) -> None:
    create(broker, "shared")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "mixed",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe(["shared"])

    async def join() -> tuple[set[int], set[int]]:
        async with open_consumer(
            broker.bootstrap,
            group_id="mixed",
            partition_assignment_strategy="range",
            heartbeat_interval_ms=200,
            session_timeout_ms=6_000,
        ) as ours:
            ours.subscribe(["shared"])
            with trio.fail_after(60):
                while True:
                    await ours.poll(timeout_s=0.1)
                    consumer.poll(0)
                    mine = {each.partition for each in ours.assignment}
                    other = {each.partition for each in consumer.assignment()}
                    if mine and other and len(mine | other) == PARTITIONS:
                        return mine, other

    mine, other = trio.run(join)
    consumer.close()
    assert not mine & other


def test_a_broker_that_is_killed_and_comes_back_is_no_error(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path)

    async def main() -> list[int]:
        async with open_producer(process.bootstrap, linger_ms=0) as producer:
            written = [await (await producer.send("t", b"before")).wait()]
            process.kill()
            receipts = [await producer.send("t", b"during") for _ in range(10)]
            await trio.to_thread.run_sync(process.start)
            written += [await each.wait() for each in receipts]
        return [each.offset for each in written]

    assert trio.run(main) == list(range(11))
    process.close()
