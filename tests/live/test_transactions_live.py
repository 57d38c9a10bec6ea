"""Transactional producers and read_committed consumers of librdkafka and aiokafka."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.live.broker_process import BrokerProcess
from tests.live.verifying import PATIENT

pytestmark = pytest.mark.live

WITHIN_S = 30
COUNT = 12


def producer(broker: BrokerProcess, name: str) -> Producer:
    made = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, **PATIENT}
    )
    made.init_transactions(WITHIN_S)
    return made


def committed(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    """Return the first ``count`` committed values, and one more if it exists."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "committed",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **PATIENT,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    ends_at = time.monotonic() + WITHIN_S
    while time.monotonic() < ends_at:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append(message.value())
        elif len(found) >= count:
            break
    consumer.close()
    return found


def test_librdkafkas_transactions_are_committed_and_aborted(
    broker: BrokerProcess, topic: str
) -> None:
    first = producer(broker, "orders")
    expected = []
    for number in range(COUNT):
        first.begin_transaction()
        values = [b"%d %d" % (number, at) for at in range(3)]
        for value in values:
            first.produce(topic, value, partition=0)
        if number % 3:
            first.commit_transaction(WITHIN_S)
            expected += values
        else:
            first.flush(WITHIN_S)
            first.abort_transaction(WITHIN_S)
    first.begin_transaction()
    first.produce(topic, b"open", partition=0)
    assert first.flush(WITHIN_S) == 0
    # The next producer of the id aborts the transaction and fences this one.
    second = producer(broker, "orders")
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(WITHIN_S)
    assert fenced.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"last", partition=0)
    second.commit_transaction(WITHIN_S)
    assert committed(broker, topic, len(expected) + 1) == [*expected, b"last"]


def test_aiokafkas_transactions_are_committed_and_aborted(
    broker: BrokerProcess, topic: str
) -> None:
    async def run() -> list[bytes | None]:
        made = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="aio"
        )
        await made.start()
        try:
            for number in range(COUNT):
                await made.begin_transaction()
                await made.send_and_wait(topic, b"%d" % number, partition=0)
                if number % 2:
                    await made.commit_transaction()
                else:
                    await made.abort_transaction()
        finally:
            await made.stop()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            return [(await consumer.getone()).value for _ in range(COUNT // 2)]
        finally:
            await consumer.stop()

    found = asyncio.run(asyncio.wait_for(run(), WITHIN_S))
    assert found == [b"%d" % number for number in range(1, COUNT, 2)]
