"""Real clients of a broker that throttles and sheds requests lose no record.

The broker's own counters prove that requests were throttled or refused. All produced
records are then read back, each once and in order.
"""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.live

PRODUCERS, RECORDS, ROUNDS = 6, 100, 20
# A single handler flushes every batch, so that producers wait for each other.
SLOW = {"num_io_threads": "1", "log_flush_interval_messages": "1"}
RULES = {
    "codel": {
        "doorkeeper_scheduler": "adaptive-lifo",
        "doorkeeper_admission_target_ms": "1",
        "doorkeeper_admission_interval_ms": "1",
    },
    "deadline": {"doorkeeper_admission_deadline_ms": "produce:2"},
    "token-bucket": {
        "doorkeeper_admission_rates_per_s": "produce:100,fetch:100,admin:5",
        "doorkeeper_admission_burst_requests": "produce:3,fetch:3,admin:1",
    },
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(params=RULES)
def broker(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[BrokerProcess, int]]:
    port = free_port()
    process = BrokerProcess(
        tmp_path,
        doorkeeper_admission=request.param,
        doorkeeper_metrics_port=str(port),
        **SLOW,
        **RULES[request.param],
    )
    yield process, port
    process.close()


def held_back(port: int) -> dict[str, float]:
    """Return the number of throttled or refused requests by class."""
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url) as page:
        text = page.read().decode()
    found: dict[str, float] = {}
    pattern = r"^doorkeeper_admission_held_back_total\{([^}]*)\} ([0-9.e+]+)$"
    for labels, value in re.findall(pattern, text, re.MULTILINE):
        name = re.search(r'class="(\w+)"', labels)
        assert name is not None
        found[name[1]] = found.get(name[1], 0) + float(value)
    return found


def test_confluent_kafka_gets_every_record_through_once_and_in_order(
    broker: tuple[BrokerProcess, int],
) -> None:
    process, port = broker
    settings = {"bootstrap.servers": process.bootstrap}
    admin = AdminClient(settings)
    for created in admin.create_topics([NewTopic("t", 1)]).values():
        created.result(30)
    producers = [
        Producer(
            {
                **settings,
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 5,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 50,
            }
        )
        for _ in range(PRODUCERS)
    ]
    failures: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    sent = 0
    # The schedule of the processes decides whether producers meet at the handler.
    while not held_back(port).get("produce"):
        assert sent < ROUNDS * RECORDS, held_back(port)
        for number in range(sent, sent + RECORDS):
            for which, producer in enumerate(producers):
                value = f"{which}/{number}".encode()
                producer.produce("t", value, partition=0, on_delivery=delivered)
                producer.poll(0)
        for producer in producers:
            assert producer.flush(60) == 0
        sent += RECORDS
    assert not failures
    found = read(settings, sent * len(producers))
    for which in range(len(producers)):
        mine = [int(n) for w, n in (it.split("/") for it in found) if int(w) == which]
        assert mine == list(range(sent))
    assert "control" not in held_back(port)


def read(settings: dict[str, object], count: int) -> list[str]:
    """Read ``count`` values as a group member."""
    consumer = Consumer(
        {
            **settings,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            "fetch.error.backoff.ms": 5,
            "retry.backoff.ms": 5,
        }
    )
    consumer.subscribe(["t"])
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        for message in consumer.consume(100, 0.2):
            if message.error() is None:
                found.append(message.value().decode())
            else:
                assert message.error().retriable(), message.error()
    position = consumer.position([TopicPartition("t", 0)])
    assert position[0].offset == count
    consumer.close()
    return found
