"""Stops and kills of a real broker process, with clients that verify.

With ``log.flush.interval.messages=1`` an acknowledged record is on disk, so no kill may
lose one; an idempotent producer that goes on over kills must leave no duplicate.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.live

KILLS = 5
SCHEDULERS = ("fifo", "planes", "priority", "wfq")


class VerifyingProducer:
    """Produces numbers one after the other, and remembers which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, int] = {}
        self.failures: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 50,
                "logger": _Quiet(),
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Produce no more, and wait until all is acknowledged."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(20) == 0
        assert self.failures == []

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(
                "t", str(number).encode(), partition=0, on_delivery=self._delivered
            )
            self._producer.poll(0.001)
            number += 1

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[int(message.value())] = message.offset()


class _Quiet:
    """A logger for librdkafka, which tells of each lost connection."""

    def log(self, *_: Any) -> None:
        """Say nothing."""

    handle = log


def test_kills_lose_no_acknowledged_record_and_repeat_none(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, log_flush_interval_messages="1")
    producer = VerifyingProducer(broker.bootstrap)
    for _ in range(KILLS):
        known = len(producer.acknowledged)
        _wait_until(lambda known=known: len(producer.acknowledged) > known + 50)
        broker.kill()
        broker.start()
    producer.stop()
    found = _read_all(broker, len(producer.acknowledged))
    assert found == sorted(found), "the order of one producer was changed"
    assert len(set(found)) == len(found), "a record is there twice"
    assert set(producer.acknowledged) <= set(found), "an acknowledged record is lost"
    for number, offset in producer.acknowledged.items():
        assert offset < 0 or found[offset] == number
    broker.close()


def _read_all(broker: BrokerProcess, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), 10)
    assert end >= count
    found: list[int] = []
    end_s = time.monotonic() + 20
    while len(found) < end and time.monotonic() < end_s:
        for message in consumer.consume(1000, timeout=0.2):
            assert message.offset() == len(found), "offsets are not consecutive"
            found.append(int(message.value()))
    consumer.close()
    return found


def _wait_until(condition: Any, within_s: float = 20) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.01)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_sigterm_ends_it_soon_though_requests_wait(
    tmp_path: Path, scheduler: str
) -> None:
    broker = BrokerProcess(tmp_path, doorkeeper_scheduler=scheduler)
    _produce_some(broker, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "fetch.wait.max.ms": 30_000,
            "socket.timeout.ms": 40_000,
            "reconnect.backoff.max.ms": 100,
            "logger": _Quiet(),
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    _wait_until(lambda: consumer.poll(0.5) is not None)
    time.sleep(0.1)  # the next Fetch is waiting now
    began_s = time.monotonic()
    broker.stop()
    assert time.monotonic() - began_s < 2
    broker.start()
    consumer.close()
    broker.close()


def test_a_stop_spares_the_next_start_the_recovery(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    _produce_some(broker, 100)
    broker.stop()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    broker.start()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert _read_all(broker, 100) == list(range(100))
    broker.kill()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    broker.start()
    assert _read_all(broker, 100) == list(range(100))
    broker.close()


def _produce_some(broker: BrokerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce("t", str(number).encode(), partition=0)
    assert producer.flush(10) == 0
