"""Ten thousand partitions: create, fill, list, delete, stop and start.

Both brokers receive the same requests of librdkafka, one broker after the other, on a
data directory that outlives the stop. Each has all CPUs, because operators wait for the
wall-clock time of these steps. Both brokers answer a deletion when clients no longer
see the topic; they delete files later. There is one round, of a minute per broker.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import brokers, clients
from bench.row import BenchRow, paired
from experiments.worlds.kafka.apache_kafka import NoKafka

TOPICS, PARTITIONS = 10, 1_000
_TIMEOUT_S = 300
_ASKED = 5

StartOn = Callable[[Path], AbstractContextManager[brokers.Running]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Duration of each step, in seconds."""

    create_s: float
    fill_s: float
    metadata_s: float
    delete_s: float
    stop_s: float
    start_s: float


_NAMES = {
    "create_s": f"{TOPICS} topics of {PARTITIONS:,} partitions created",
    "fill_s": f"a record in each of {TOPICS * PARTITIONS:,} partitions",
    "metadata_s": f"metadata of {TOPICS * PARTITIONS:,} partitions",
    "delete_s": f"a topic of {PARTITIONS:,} partitions deleted",
    "stop_s": f"orderly stop with {(TOPICS - 1) * PARTITIONS:,} partitions",
    "start_s": f"start to first answer with {(TOPICS - 1) * PARTITIONS:,} partitions",
}


def rows() -> Iterator[BenchRow]:
    """Compare with Apache Kafka, if installed."""
    try:
        theirs = figures(brokers.kafka)
    except NoKafka as none:
        print(f"left out: {none}", file=sys.stderr)
        return
    ours = figures(brokers.doorkeeper)
    for key, name in _NAMES.items():
        yield paired(
            name,
            "s",
            [getattr(ours, key)],
            f"Apache Kafka {brokers.KAFKA_VERSION}",
            [getattr(theirs, key)],
            more_is_better=False,
        )


def figures(start: StartOn) -> Figures:
    """Run all steps on one broker with a directory of its own."""
    with brokers.directory() as data:
        with start(data) as running:
            measured = _life(running)
            began_s = time.monotonic()
        stop_s = time.monotonic() - began_s
        with start(data) as again:
            start_s = again.start_s
    return Figures(**measured, stop_s=stop_s, start_s=start_s)


def _life(running: brokers.Running) -> dict[str, float]:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(_settings(running))
    names = [f"many-{number}" for number in range(TOPICS)]

    def create() -> None:
        # One by one: Kafka refuses a request for ten thousand partitions.
        for name in names:
            new = [NewTopic(name, PARTITIONS, 1)]
            _settle(admin.create_topics(new, operation_timeout=_TIMEOUT_S))

        # Kafka's broker learns of the topics shortly after its controller has answered.
        while named() < TOPICS * PARTITIONS:
            time.sleep(0.05)

    def named() -> int:
        metadata = admin.list_topics(timeout=_TIMEOUT_S).topics
        return sum(len(metadata[name].partitions) for name in names if name in metadata)

    def request_metadata() -> None:
        for _ in range(_ASKED):
            assert named() == TOPICS * PARTITIONS

    def delete() -> None:
        _settle(admin.delete_topics(names[:1], operation_timeout=_TIMEOUT_S))

    return {
        "create_s": _timed(create),
        "fill_s": _timed(lambda: clients.fill(running, names, PARTITIONS)),
        "metadata_s": _timed(request_metadata) / _ASKED,
        "delete_s": _timed(delete),
    }


def _settings(running: brokers.Running) -> dict[str, str | int | float | bool]:
    # No log lines: clients outlive the broker for a moment.
    return {"bootstrap.servers": running.bootstrap, "log_level": 0}


def _settle(futures: dict[str, Any]) -> None:
    for future in futures.values():
        future.result(_TIMEOUT_S)


def _timed(work: Callable[[], None]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s
