"""Bytes per second through librdkafka and through Kafka's own clients.

Sizes are those of the records' values. A client runs on the load's CPU and often limits
the rate. The broker's CPU time then shows how far the broker is from its own limit.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from bench.brokers import Running, java_command

_WAIT_S, _LONG_S = 30.0, 300.0
# Kafka refuses a request for ten thousand partitions.
_TOPICS_AT_ONCE = 100
_CHUNK = 10_000
_SEED = 30
_MIB = 1024 * 1024 / 1e6


def create_topic(broker: Running, topic: str, partitions: int = 1) -> None:
    """Create a topic, and wait until it takes records."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(broker.client_settings)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=_WAIT_S)
    producer = Producer({**broker.client_settings, "acks": 1})
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(_WAIT_S) == 0, f"{broker.name} takes no records"


def create_topics(broker: Running, names: Sequence[str], partitions: int) -> None:
    """Create topics, `_TOPICS_AT_ONCE` by one request."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(broker.client_settings)
    for at in range(0, len(names), _TOPICS_AT_ONCE):
        new = [NewTopic(it, partitions, 1) for it in names[at : at + _TOPICS_AT_ONCE]]
        created = admin.create_topics(new, operation_timeout=_LONG_S)
        for future in created.values():
            future.result(_LONG_S)
    # Kafka's broker learns of the topics shortly after its controller has answered.
    while not {*names} <= admin.list_topics(timeout=_LONG_S).topics.keys():
        time.sleep(0.1)


def fill(broker: Running, names: Sequence[str], partitions: int) -> None:
    """Write a record to every partition; return when all are acknowledged."""
    from confluent_kafka import Producer

    refused: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    # No log lines: the producer outlives the broker for a moment.
    producer = Producer({**broker.client_settings, "linger.ms": 50, "log_level": 0})
    for name in names:
        for partition in range(partitions):
            producer.produce(
                name, b"x" * 100, partition=partition, on_delivery=delivered
            )
            producer.poll(0)
    left = producer.flush(_LONG_S)
    if left or refused:
        raise RuntimeError(f"{left} records unanswered, refused: {refused[:3]}")


def commit(
    broker: Running, groups: Mapping[str, Sequence[str]], partitions: int
) -> None:
    """Commit the start of the partitions of each group's topics, without members."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**broker.client_settings, "log_level": 0})
    for group, names in groups.items():
        numbers = range(partitions)
        places = [TopicPartition(name, it, 0) for name in names for it in numbers]
        requested = [ConsumerGroupTopicPartitions(group, places)]
        ends_s = time.monotonic() + _WAIT_S
        while True:
            (committed,) = admin.alter_consumer_group_offsets(requested).values()
            answers = committed.result(_WAIT_S).topic_partitions
            errors = [it.error for it in answers if it.error]
            if not errors:
                break
            # The coordinator is still loading.
            if time.monotonic() > ends_s:
                raise RuntimeError(f"commits of {group} are refused: {errors[0]}")
            time.sleep(0.1)


def produce(
    broker: Running, topic: str, record_bytes: int, records: int, codec: str = "none"
) -> tuple[float, float]:
    """Send records with librdkafka, which batches them; acks=1.

    With a codec, half of a value is random, so that compression has work to do.

    :returns: MB/s until all are acknowledged, and MB per second of the broker's CPU.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            **broker.client_settings,
            "acks": 1,
            "compression.type": codec,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    # Connect and read the metadata before the clock starts.
    producer.list_topics(topic, timeout=_WAIT_S)
    rng = random.Random(_SEED)
    drawn = record_bytes // 2 if codec != "none" else 0
    chunk = [
        {"value": rng.randbytes(drawn) + b"x" * (record_bytes - drawn)}
        for _ in range(_CHUNK)
    ]
    chunks = [chunk[: records - at] for at in range(0, records, _CHUNK)]
    began_cpu_s, began_s = broker.cpu_s(), time.perf_counter()
    for chunk in chunks:
        assert producer.produce_batch(topic, chunk, partition=0) == len(chunk)
    assert producer.flush(_WAIT_S) == 0, f"{broker.name} left records"
    spent_s = time.perf_counter() - began_s
    megabytes = records * record_bytes / 1e6
    return megabytes / spent_s, megabytes / (broker.cpu_s() - began_cpu_s)


def fetch(
    broker: Running, topic: str, record_bytes: int, records: int
) -> tuple[float, float]:
    """Read a topic from its beginning with librdkafka.

    :returns: MB/s from the first record on, and MB per second of the broker's CPU.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **broker.client_settings,
            "group.id": "bench",
            "enable.auto.commit": False,
            # Otherwise it pauses for a second while it is ahead of its application.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        assert consumer.consume(1, _WAIT_S), f"{broker.name} sends no records"
        began_cpu_s, began_s = broker.cpu_s(), time.perf_counter()
        left = records
        while left > 0:
            got = consumer.consume(min(left, 10_000), _WAIT_S)
            assert got, f"{broker.name} sends no more records"
            left -= len(got)
        spent_s = time.perf_counter() - began_s
        megabytes = records * record_bytes / 1e6
        return megabytes / spent_s, megabytes / (broker.cpu_s() - began_cpu_s)
    finally:
        consumer.close()


def transact(
    broker: Running, topic: str, producers: int, transactions: int
) -> tuple[float, float]:
    """Commit transactions of one record with each of several librdkafka producers.

    :returns: transactions per second, and per second of the broker's CPU.
    """
    from confluent_kafka import Producer

    def opened(number: int) -> Producer:
        made = Producer(
            {
                **broker.client_settings,
                "transactional.id": f"bench-{number}",
                "linger.ms": 0,
                # Each retry against a loading coordinator would print a line.
                "log_level": 0,
            }
        )
        made.init_transactions(_WAIT_S)
        return made

    def commit(producer: Producer) -> None:
        for _ in range(transactions):
            producer.begin_transaction()
            producer.produce(topic, b"x" * 100, partition=0)
            producer.commit_transaction(_WAIT_S)

    with ThreadPoolExecutor(producers) as threads:
        ready = list(threads.map(opened, range(producers)))
        began_cpu_s, began_s = broker.cpu_s(), time.perf_counter()
        # Raises the first failure.
        list(threads.map(commit, ready))
        spent_s = time.perf_counter() - began_s
    committed = producers * transactions
    return committed / spent_s, committed / (broker.cpu_s() - began_cpu_s)


def producer_perf(
    broker: Running, topic: str, record_bytes: int, records: int
) -> tuple[float, float]:
    """Run ``kafka-producer-perf-test`` with its defaults, but acks=1.

    :returns: MB/s as the tool reports, and MB per second of the broker's CPU.
    """
    began_cpu_s = broker.cpu_s()
    out = _java(
        *("kafka-producer-perf-test", "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(record_bytes)),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=1"),
        "linger.ms=5",
    )
    # 1000 records sent, 1.0 records/sec (0.10 MB/sec), ...
    last = next(line for line in reversed(out) if line.startswith(f"{records} records"))
    rate = float(last.partition("(")[2].split()[0]) * _MIB
    megabytes = records * record_bytes / 1e6
    return rate, megabytes / (broker.cpu_s() - began_cpu_s)


def consumer_perf(
    broker: Running, topic: str, record_bytes: int, records: int
) -> tuple[float, float]:
    """Run ``kafka-consumer-perf-test`` with its defaults.

    :returns: MB/s as the tool reports, without the time to join its group, and MB per
        second of the broker's CPU.
    """
    began_cpu_s = broker.cpu_s()
    out = _java(
        *("kafka-consumer-perf-test", "--topic", topic, "--messages", str(records)),
        *("--bootstrap-server", broker.bootstrap, "--timeout", "60000"),
    )
    head, values = (line.split(", ") for line in islice(out, 2))
    if len(values) != len(head):
        # The tool prints the reason for an early end instead of figures.
        raise RuntimeError(f"kafka-consumer-perf-test with {broker.name}: {out}")
    row = dict(zip(head, values, strict=True))
    megabytes = float(row["data.consumed.in.MB"]) * _MIB
    return (
        float(row["fetch.MB.sec"]) * _MIB,
        megabytes / (broker.cpu_s() - began_cpu_s),
    )


def _java(program: str, *arguments: str) -> list[str]:
    """Run a program of Kafka's; return the lines that it printed."""
    done = subprocess.run(
        [*java_command(program, "-Xmx512M"), *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=4 * _WAIT_S,
    )
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
