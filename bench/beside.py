"""The whole broker against other brokers: speed, tails, start and memory, in one run.

All brokers run at the same time, but only one is under load at any time; each round
starts with another one. A broker is warmed up before it is pinned and measured. A JVM
compiles frequently executed code: its rate settled after half a minute of load on two
CPUs. Doorkeeper and tansu need no warm-up and get one second.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median

from bench import clients
from bench.brokers import Running, Start, doorkeeper, on_the_load_cpu, peers
from bench.row import BenchRow, paired
from bench.small_requests import TOPIC, closed_loop, p99_ms

OURS, KAFKA = "doorkeeper", "kafka"
_ROUNDS = 5
# Starts and tails, which vary less or take longer.
_FEWER_ROUNDS = 3
_CONNECTIONS = (1, 16, 256)
_TAIL_CONNECTIONS = 16
_SECONDS = 1.5
_TAIL_SECONDS = 3.0
_IDLE_SECONDS = 1.0
_WARM_UP_SECONDS: Mapping[str, float] = {KAFKA: 30.0}
# Bytes of a value -> records per round.
_VOLUMES = {100: 600_000, 1_000: 150_000}

# Brokers decompress records and check each one before they append a batch.
_CODECS = ("gzip", "lz4", "zstd")

_LESS_IS_BETTER = frozenset({"s", "ms", "MB"})

# (row's name, unit) -> broker -> one figure per round
Samples = defaultdict[tuple[str, str], defaultdict[str, list[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measurement of one broker that gives one figure per unit."""

    name: str
    units: Sequence[str]
    take: Callable[[Running], Sequence[float]]
    by_java: bool = False

    def applies_to(self, broker: Running, names: Collection[str]) -> bool:
        """Return whether ``broker``, one of ``names``, takes part.

        A measurement with Kafka's tools or codecs compares Kafka and Doorkeeper only,
        and requires Kafka.
        """
        return not self.by_java or (KAFKA in names and broker.name in (OURS, KAFKA))


def rows() -> Iterator[BenchRow]:
    """Compare with each installed peer, by every measure."""
    starts: dict[str, Start] = {OURS: doorkeeper, **peers()}
    samples: Samples = defaultdict(lambda: defaultdict(list))
    for _ in range(_FEWER_ROUNDS):
        for start in starts.values():
            _start_once(start, samples)
    with ExitStack() as stack:
        running = [stack.enter_context(start()) for start in starts.values()]
        stack.enter_context(on_the_load_cpu())
        for broker in running:
            _warm_up(broker)
        for number in range(_ROUNDS):
            measure_round(number, running, list(_measures()), samples)
            for broker in running:
                loaded_mb = broker.resident_mb()
                samples["resident memory, under load", "MB"][broker.name].append(
                    loaded_mb
                )
        tails = {peer.name: _tails(running[0], peer, samples) for peer in running[1:]}
    for title, peer in zip(starts, running, strict=True):
        if peer is not running[0]:
            yield from peer_rows(peer.name, title, {**samples, **tails[peer.name]})


def peer_rows(
    peer: str,
    title: str,
    samples: Mapping[tuple[str, str], Mapping[str, Sequence[float]]],
) -> Iterator[BenchRow]:
    """Yield the rows of one peer from all samples; ``title`` is its printed name."""
    for (measured, unit), by_broker in samples.items():
        if by_broker.get(peer):
            yield paired(
                measured,
                unit,
                by_broker[OURS],
                title,
                by_broker[peer],
                more_is_better=unit not in _LESS_IS_BETTER,
            )


def _start_once(start: Start, samples: Samples) -> None:
    """Measure a broker's start, and its memory while it is idle."""
    with start() as broker:
        samples["start to first answer", "s"][broker.name].append(broker.start_s)
        time.sleep(_IDLE_SECONDS)
        idle_mb = broker.resident_mb()
        samples["resident memory, idle", "MB"][broker.name].append(idle_mb)


def _warm_up(broker: Running) -> None:
    """Warm a broker up on all CPUs, then pin it."""
    clients.create_topic(broker, TOPIC)
    closed_loop(broker, 16, _WARM_UP_SECONDS.get(broker.name, 1.0))
    warm_up_volumes(broker, _VOLUMES)
    for record_bytes, records in _VOLUMES.items():
        for codec in _CODECS if broker.name in (OURS, KAFKA) else ():
            packed = f"bytes-{record_bytes}-{codec}"
            clients.create_topic(broker, packed)
            clients.produce(broker, packed, record_bytes, records, codec)
    broker.pin()


def measure_round(
    number: int,
    running: Sequence[Running],
    measures: Sequence[Measure],
    samples: Samples,
) -> None:
    """Take all measures of every broker, starting with another one each time."""
    first = number % len(running)
    order = [*running[first:], *running[:first]]
    names = [broker.name for broker in running]
    for measure in measures:
        for broker in order:
            if measure.applies_to(broker, names):
                figures = measure.take(broker)
                for unit, figure in zip(measure.units, figures, strict=True):
                    samples[measure.name, unit][broker.name].append(figure)


def _measures() -> Iterator[Measure]:
    for connections in _CONNECTIONS:
        yield Measure(
            name=f"PRODUCE of one record, acks=1, {connections} connections",
            units=("requests/s", "requests/CPU s"),
            take=partial(closed_loop, connections=connections, seconds=_SECONDS),
        )
    for record_bytes, records in _VOLUMES.items():
        yield from volume_measures({record_bytes: records})
        topic = f"bytes-{record_bytes}"
        for name, take in (
            ("kafka-producer-perf-test", clients.producer_perf),
            ("kafka-consumer-perf-test", clients.consumer_perf),
        ):
            yield Measure(
                name=f"records of {record_bytes} B, {name}",
                units=("MB/s", "MB/CPU s"),
                take=partial(
                    take, topic=topic, record_bytes=record_bytes, records=records
                ),
                by_java=True,
            )
        for codec in _CODECS:
            yield Measure(
                name=f"records of {record_bytes} B by {codec}, produced by librdkafka",
                units=("MB/s", "MB/CPU s"),
                take=partial(
                    clients.produce,
                    topic=f"{topic}-{codec}",
                    record_bytes=record_bytes,
                    records=records,
                    codec=codec,
                ),
                by_java=True,
            )


def volume_measures(volumes: Mapping[int, int], over: str = "") -> Iterator[Measure]:
    """Yield the rows of librdkafka's MB/s; ``volumes``: value bytes -> records.

    `warm_up_volumes` creates their topics. ``over`` names the kind of connection.
    """
    for record_bytes, records in volumes.items():
        for verb, take in (("produced", clients.produce), ("fetched", clients.fetch)):
            yield Measure(
                name=f"records of {record_bytes} B{over}, {verb} by librdkafka",
                units=("MB/s", "MB/CPU s"),
                take=partial(
                    take,
                    topic=f"bytes-{record_bytes}",
                    record_bytes=record_bytes,
                    records=records,
                ),
            )


def warm_up_volumes(broker: Running, volumes: Mapping[int, int]) -> None:
    """Create the topics of `volume_measures`, and write and read them once."""
    for record_bytes, records in volumes.items():
        topic = f"bytes-{record_bytes}"
        clients.create_topic(broker, topic)
        clients.produce(broker, topic, record_bytes, records)
        clients.fetch(broker, topic, record_bytes, records)


def _tails(ours: Running, peer: Running, samples: Samples) -> Samples:
    """Compare p99s at half the rate of the slower broker."""
    capacities = samples[
        f"PRODUCE of one record, acks=1, {_TAIL_CONNECTIONS} connections", "requests/s"
    ]
    rate_per_s = min(median(capacities[each.name]) for each in (ours, peer)) / 2
    rate_per_s = float(f"{rate_per_s:.2g}")
    found: Samples = defaultdict(lambda: defaultdict(list))
    row = f"p99 of PRODUCE at {rate_per_s:.0f}/s, {_TAIL_CONNECTIONS} connections", "ms"
    for _ in range(_FEWER_ROUNDS):
        for broker in (ours, peer):
            found[row][broker.name].append(
                p99_ms(broker, rate_per_s, _TAIL_CONNECTIONS, _TAIL_SECONDS)
            )
    return found
