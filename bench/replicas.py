"""Three replicas and acks=all, against Apache Kafka: bytes, tails, and leader failure.

Both clusters run at the same time, but only one is under load at any time; each round
starts with another one. Kafka is warmed up first, as in `beside`. The fail-over time
runs from a leader's kill -9 until a record sent after it is acknowledged. Most of it is
the ZooKeeper session of 6 s that has to expire, in both clusters.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

from bench.brokers import on_the_load_cpu
from bench.clusters import BROKERS, Cluster, doorkeepers, kafkas
from bench.row import BenchRow, paired
from bench.small_requests import ALL, TOPIC, closed_loop, p99_ms
from experiments.processes.java import NoJava
from experiments.processes.zookeeper import NoZooKeeper
from experiments.worlds.kafka.apache_kafka import NoKafka
from experiments.worlds.kafka.zookeeper_mode import VERSION

_ROUNDS, _FAILOVERS = 5, 3
_WARM_UPS: Final[Mapping[str, int]] = {"kafka": 8}
_BYTES: Final = 1_000
_RECORDS: Final = 60_000
_CONNECTIONS: Final = 16
_SECONDS, _TAIL_SECONDS = 1.5, 3.0
_WAIT_S: Final = 60.0
_SEND_EVERY_S: Final = 0.005
_BYTES_TOPIC: Final = "bytes"
_LESS_IS_BETTER: Final = frozenset({"s", "ms"})

Samples = defaultdict[tuple[str, str], defaultdict[str, list[float]]]


def rows() -> Iterator[BenchRow]:
    """Compare with Apache Kafka, if installed."""
    samples: Samples = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        try:
            theirs = stack.enter_context(kafkas())
        except (NoKafka, NoJava, NoZooKeeper) as none:
            print(f"left out: {none}", file=sys.stderr)
            return
        ours = stack.enter_context(doorkeepers())
        clusters = [ours, theirs]
        stack.enter_context(on_the_load_cpu())
        leaders = {each.name: _prepare(each) for each in clusters}
        for number in range(_ROUNDS):
            order = clusters[:: -1 if number % 2 else 1]
            for cluster in order:
                _bytes(cluster, samples)
            for cluster in order:
                _requests(cluster, leaders[cluster.name], samples)
        _tails(clusters, leaders, samples)
        for _ in range(_FAILOVERS):
            for cluster in clusters:
                failover = samples["a leader's kill -9 until acknowledged again", "s"]
                failover[cluster.name].append(failover_s(cluster))
    for (name, unit), figures in samples.items():
        yield paired(
            f"3 replicas, acks=all: {name}",
            unit,
            figures[ours.name],
            f"Apache Kafka {VERSION}, ZooKeeper",
            figures[theirs.name],
            more_is_better=unit not in _LESS_IS_BETTER,
        )


def _prepare(cluster: Cluster) -> int:
    """Create topics and warm up; return the leader of the topic of small requests."""
    admin = _admin(cluster)
    # Without a controller the client would wait for its next metadata refresh.
    cluster.await_whole(admin)
    for topic, partitions in ((TOPIC, 1), (_BYTES_TOPIC, BROKERS)):
        _create(cluster, admin, topic, partitions)
    leader = _leader(admin)
    for _ in range(_WARM_UPS.get(cluster.name, 1)):
        produce(cluster)
        closed_loop(cluster.running(leader), _CONNECTIONS, _SECONDS, acks=ALL)
    return leader


def _create(cluster: Cluster, admin: Any, topic: str, partitions: int) -> None:
    from confluent_kafka.cimpl import NewTopic

    new = NewTopic(topic, partitions, BROKERS)
    admin.create_topics([new])[topic].result(_WAIT_S)
    cluster.await_whole(admin, topic)


def _bytes(cluster: Cluster, samples: Samples) -> None:
    name = f"records of {_BYTES} B, produced by librdkafka"
    rate, per_cpu_s = produce(cluster)
    samples[name, "MB/s"][cluster.name].append(rate)
    samples[name, "MB/CPU s of all brokers"][cluster.name].append(per_cpu_s)


def produce(cluster: Cluster) -> tuple[float, float]:
    """Send records with librdkafka to a partition led by each broker.

    :returns: MB/s until all are acknowledged, and MB per second of the brokers' CPU.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    producer.list_topics(_BYTES_TOPIC, timeout=_WAIT_S)
    chunk = [{"value": b"x" * _BYTES}] * 1_000
    began_cpu_s, began_s = cluster.cpu_s(), time.perf_counter()
    for number in range(_RECORDS // len(chunk)):
        sent = producer.produce_batch(_BYTES_TOPIC, chunk, partition=number % BROKERS)
        assert sent == len(chunk)
    assert producer.flush(_WAIT_S) == 0, f"{cluster.name} left records"
    spent_s = time.perf_counter() - began_s
    megabytes = _RECORDS * _BYTES / 1e6
    return megabytes / spent_s, megabytes / (cluster.cpu_s() - began_cpu_s)


def _requests(cluster: Cluster, leader: int, samples: Samples) -> None:
    name = f"PRODUCE of one record, {_CONNECTIONS} connections"
    before_s, began_s = cluster.cpu_s(), time.perf_counter()
    rate, _ = closed_loop(cluster.running(leader), _CONNECTIONS, _SECONDS, acks=ALL)
    answered = rate * (time.perf_counter() - began_s)
    samples[name, "requests/s"][cluster.name].append(rate)
    samples[name, "requests/CPU s of all brokers"][cluster.name].append(
        answered / (cluster.cpu_s() - before_s)
    )


def _tails(
    clusters: list[Cluster], leaders: Mapping[str, int], samples: Samples
) -> None:
    """Compare p99s at half the rate of the slower cluster."""
    name = f"PRODUCE of one record, {_CONNECTIONS} connections"
    capacities = samples[name, "requests/s"]
    rate_per_s = min(median(each) for each in capacities.values()) / 2
    rate_per_s = float(f"{rate_per_s:.2g}")
    row = f"p99 of PRODUCE at {rate_per_s:.0f}/s, {_CONNECTIONS} connections", "ms"
    for _ in range(_FAILOVERS):
        for cluster in clusters:
            leader = cluster.running(leaders[cluster.name])
            samples[row][cluster.name].append(
                p99_ms(leader, rate_per_s, _CONNECTIONS, _TAIL_SECONDS, acks=ALL)
            )


def failover_s(cluster: Cluster) -> float:
    """Kill a leader; return the time until a record sent after that is acknowledged.

    Returns when all replicas are in sync again.
    """
    from confluent_kafka import Producer

    admin = _admin(cluster)
    cluster.await_whole(admin, TOPIC)
    leader = _leader(admin)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "topic.metadata.refresh.fast.interval.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
            "log_level": 0,
        }
    )
    acknowledged: list[float] = []

    def delivered(error: object, _: object) -> None:
        if error is None:
            acknowledged.append(time.perf_counter())

    producer.produce(TOPIC, b"before", partition=0)
    assert producer.flush(_WAIT_S) == 0, f"{cluster.name} takes no records"
    cluster.kill(leader)
    killed_s = time.perf_counter()
    while not acknowledged:
        if time.perf_counter() - killed_s > _WAIT_S:
            raise RuntimeError(f"{cluster.name} does not fail over")
        producer.produce(TOPIC, b"after", partition=0, on_delivery=delivered)
        producer.poll(_SEND_EVERY_S)
    producer.flush(_WAIT_S)
    cluster.restart(leader)
    cluster.await_whole(admin, TOPIC)
    return acknowledged[0] - killed_s


def _leader(admin: Any) -> int:
    """Return the leader of the topic of small requests."""
    metadata = admin.list_topics(TOPIC, timeout=_WAIT_S).topics[TOPIC]
    leader: int = metadata.partitions[0].leader
    return leader


def _admin(cluster: Cluster) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
