"""Readers of a topic: one that reads to the end, and one that runs beside the kills."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.exactly_once.verifier import Row, Verifier
from tests.live.verifying import PATIENT

_CALL_S: Final = 10.0
_PATIENCE_S: Final = 60.0
# Transient errors while brokers are down.
_PASSING: Final = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
)


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verifier",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "topic.metadata.refresh.fast.interval.ms": 100,
            **PATIENT,
        }
    )


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    found = consumer.list_topics(topic, _CALL_S).topics[topic].partitions
    return [TopicPartition(topic, each, OFFSET_BEGINNING) for each in found]


def ends(bootstrap: str, topic: str, isolation: str) -> dict[int, int]:
    """Return the end offset of each partition."""
    consumer = _consumer(bootstrap, isolation)
    try:
        return {
            each.partition: consumer.get_watermark_offsets(each, _CALL_S)[1]
            for each in _partitions(consumer, topic)
        }
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, isolation: str) -> list[Row]:
    """Read a topic to its end."""
    wanted = ends(bootstrap, topic, isolation)
    consumer = _consumer(bootstrap, isolation)
    consumer.assign(_partitions(consumer, topic))
    rows: list[Row] = []
    until_s = time.monotonic() + _PATIENCE_S
    # Control records advance the position, but are not returned.
    while any(_position(consumer, topic, it) < wanted[it] for it in wanted):
        assert time.monotonic() < until_s, (topic, isolation, wanted, len(rows))
        rows += _rows(consumer)
    consumer.close()
    return rows


def _position(consumer: Consumer, topic: str, partition: int) -> int:
    return int(consumer.position([TopicPartition(topic, partition)])[0].offset)


def _rows(consumer: Consumer) -> Iterator[Row]:
    for message in consumer.consume(1_000, timeout=0.2):
        error = message.error()
        if error is None:
            yield Row(message.partition(), message.offset(), message.value())
        elif error.code() not in _PASSING:
            raise KafkaException(error)


class LiveReader:
    """Reads committed records of the target continuously, and verifies them."""

    def __init__(self, bootstrap: str, verifier: Verifier) -> None:
        self._consumer = _consumer(bootstrap, "read_committed")
        self._consumer.assign(_partitions(self._consumer, "target"))
        self._verifier = verifier
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                for row in _rows(self._consumer):
                    self._verifier.take(row)
            except KafkaException as error:
                self._verifier.faults.append(f"the reader failed: {error}")
                return

    def close(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()
