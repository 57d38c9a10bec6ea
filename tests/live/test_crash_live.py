"""Stops and kills of a real broker process, with verifying clients.

With ``log.flush.interval.messages=1`` an acknowledged record is on disk, so a kill must
not lose it. An idempotent producer that continues over kills must leave no duplicates.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from simulation.checkers import check
from simulation.histories import History
from tests.bad_days.live_cluster import PARTITIONS
from tests.bad_days.recording_clients import (
    RecordingMember,
    RecordingProducer,
    note_the_end,
)
from tests.live.broker_process import BrokerProcess
from tests.live.verifying import Quiet

pytestmark = pytest.mark.live

SEED = 4453
SCHEDULERS = ("fifo", "planes")


@pytest.mark.parametrize(
    "kills", [5, pytest.param(100, marks=pytest.mark.slow)], ids=str
)
def test_kills_lose_and_repeat_nothing(tmp_path: Path, kills: int) -> None:
    # Every log is flushed before a response, also that of group offsets.
    broker = BrokerProcess(
        tmp_path, log_flush_interval_messages="1", num_partitions=str(PARTITIONS)
    )
    history = History()
    producer = RecordingProducer(broker.bootstrap, history, "producer", SEED)
    member = RecordingMember(broker.bootstrap, history, "member")
    rng = random.Random(SEED)
    for kill in range(kills):
        sent, committed = len(history.sends), _commits(history)
        _wait_until(lambda sent=sent: len(history.sends) > sent + 10)
        if kill % 5 == 4:
            # In some rounds the consumer catches up; in others a kill may hit it
            # anywhere.
            _wait_until(lambda committed=committed: _commits(history) > committed)
        time.sleep(rng.uniform(0, 0.05))
        broker.kill()
        if kill % 10 == 9:
            broker.crash_while_starting(rng.uniform(0.1, 0.6))
        broker.start()
    producer.stop(20)
    sent_values = {send.value for send in history.sends}
    _wait_until(lambda: sent_values <= {read.value for read in history.reads})
    member.stop()
    note_the_end(broker.bootstrap, history, 20)
    broker.close()
    assert producer.errors + member.errors == []
    assert check(history) == []


def _commits(history: History) -> int:
    return sum(commit.outcome == "ok" for commit in history.commits)


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
            "logger": Quiet(),
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    _wait_until(lambda: consumer.poll(0.5) is not None)
    time.sleep(0.1)  # by now the next Fetch is waiting
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
