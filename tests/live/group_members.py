"""Consumers of librdkafka in threads, and what the broker has kept of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as Target
from confluent_kafka.admin import AdminClient

from tests.live.broker_process import BrokerProcess

PARTITIONS = 6


def produce(broker: BrokerProcess, topic: str, numbers: range) -> None:
    """Produce numbers, spread over the partitions, and wait until all are there."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def wait_until(condition: Callable[[], bool], seconds: float = 25) -> None:
    """Look again and again until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)


class Member:
    """A consumer of librdkafka in a thread; commits what it has seen."""

    def __init__(self, broker: BrokerProcess, topic: str, **settings: Any) -> None:
        self.seen: list[int] = []
        self.assigned: set[int] = set()
        self.assignments = 0
        self._running = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "group",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 300,
                "log_level": 0,
                **settings,
            }
        )
        self._cooperative = (
            settings.get("partition.assignment.strategy") == "cooperative-sticky"
        )
        self._consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the group (a static member only stops); once is enough."""
        if self._running:
            self._running = False
            self._thread.join()
            self._consumer.close()

    def _on_assign(self, consumer: Consumer, targets: list[Target]) -> None:
        self.assignments += 1
        numbers = {target.partition for target in targets}
        self.assigned = self.assigned | numbers if self._cooperative else numbers

    def _on_revoke(self, consumer: Consumer, targets: list[Target]) -> None:
        self.assigned = self.assigned - {target.partition for target in targets}

    def _run(self) -> None:
        while self._running:
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            self.seen.append(int(message.value()))
            try:
                self._consumer.commit(message, asynchronous=True)
            except KafkaException:
                continue  # During a rebalance; a later one covers it.


Join = Callable[..., Member]


def committed(broker: BrokerProcess, topic: str, group: str = "group") -> list[int]:
    """Return the committed offset of each partition, -1 for none."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = ConsumerGroupTopicPartitions(
        group, [Target(topic, partition) for partition in range(PARTITIONS)]
    )
    (future,) = admin.list_consumer_group_offsets([wanted]).values()
    targets = future.result(10).topic_partitions
    return [max(target.offset, -1) for target in targets]


def sizes(count: int) -> list[int]:
    """Return how many of the first ``count`` numbers each partition has."""
    return [len(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)]
