"""Rows of `make bench` for clusters: order of measurement, and a dead broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from bench import replicas, virtual
from experiments.worlds.kafka.apache_kafka import NoKafka


class FakeCluster:
    """A cluster with a given ``speed``; each reading adds a second of CPU time."""

    def __init__(self, name: str, speed: float) -> None:
        self.name = name
        self.speed = speed
        self.used_s = 0.0

    def running(self, number: int) -> FakeCluster:
        """Return the cluster itself in place of a broker."""
        return self

    def cpu_s(self) -> float:
        """Return a second more at each call."""
        self.used_s += 1.0
        return self.used_s


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Clusters in the order of their measurement."""
    order: list[str] = []

    def produce(cluster: FakeCluster) -> tuple[float, float]:
        order.append(cluster.name)
        return cluster.speed, 2 * cluster.speed

    def closed_loop(broker: FakeCluster, *_: Any, acks: int) -> tuple[float, float]:
        assert acks == replicas.ALL
        return 100 * broker.speed, 0.0

    def p99_ms(broker: FakeCluster, rate_per_s: float, *_: Any, acks: int) -> float:
        assert acks == replicas.ALL
        return rate_per_s / broker.speed

    monkeypatch.setattr(replicas, "produce", produce)
    monkeypatch.setattr(replicas, "closed_loop", closed_loop)
    monkeypatch.setattr(replicas, "p99_ms", p99_ms)
    monkeypatch.setattr(replicas, "failover_s", lambda cluster: 8 / cluster.speed)
    monkeypatch.setattr(replicas, "_prepare", lambda cluster: 0)
    monkeypatch.setattr(replicas, "on_the_load_cpu", nullcontext)
    return order


def cluster(name: str, speed: float) -> Any:
    @contextmanager
    def start() -> Iterator[FakeCluster]:
        yield FakeCluster(name, speed)

    return start


def test_rounds_begin_with_another_cluster_and_ratios_say_who_is_better(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "doorkeepers", cluster("doorkeeper", 2.0))
    monkeypatch.setattr(replicas, "kafkas", cluster("kafka", 1.0))
    rows = list(replicas.rows())
    assert asked[:4] == ["doorkeeper", "kafka", "kafka", "doorkeeper"]
    assert [row.unit for row in rows] == [
        "MB/s",
        "MB/CPU s of all brokers",
        "requests/s",
        "requests/CPU s of all brokers",
        "ms",
        "s",
    ]
    by_unit = {row.unit: row for row in rows}
    for unit in ("MB/s", "MB/CPU s of all brokers", "requests/s", "ms", "s"):
        assert by_unit[unit].ratio == 2, unit
    # Half of the slower cluster's rate.
    assert "at 50/s" in by_unit["ms"].name
    assert all("Apache Kafka" in row.peer for row in rows)


def test_without_kafka_there_is_nothing_to_compare(
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def none() -> Any:
        raise NoKafka("no such jars")

    monkeypatch.setattr(replicas, "kafkas", none)
    assert list(replicas.rows()) == []
    assert asked == []
    assert "left out: no such jars" in capsys.readouterr().err


def test_the_virtual_world_and_simpy_serve_the_same_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual, "_REQUESTS", 60)
    monkeypatch.setattr(virtual, "_ROUNDS", 1)
    one, two = virtual.rows()
    assert "one broker" in one.name
    assert "two brokers" in two.name
    assert min(one.ours, one.theirs, two.ours, two.theirs) > 0
