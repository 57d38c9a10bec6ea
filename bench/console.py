"""The web console over a large cluster: its pages, its memory, and its load.

A broker has `TOPICS` topics with a record in each partition, and `GROUPS` groups that
have committed `PARTITIONS` offsets for each of their topics. The first page of a
console that has just started takes 1 s at most, and the console 150 MB.

The load of a console is measured by another client, which sends Produce and Fetch at a
fixed rate. Blocks with a console and without one alternate. With one, a browser has
tabs of all pages open, and the console samples the lag of all groups. Every block has a
console of its own, so each includes a first reading of everything. The p99 is unchanged
if the interval of the ratio contains 1.

The broker has the first CPU, the client the last one. Console and browser share the
last CPU, idle whenever the client has work: their own CPU time is not measured.

``python -m bench console`` takes a quarter of an hour.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench import brokers, clients
from bench.before import median_interval
from bench.brokers import Running, free_port, on_the_load_cpu
from bench.row import BenchRow, paired
from bench.small_requests import (
    TOPIC,
    closed_loop,
    fetch_frame,
    p99_ms,
    produce_frame,
)
from bench.tabs import read_s

TOPICS, PARTITIONS, GROUPS = 1_000, 10, 500
FIRST_PAGE_S, MEMORY_MB = 1.0, 150.0
_PEER: Final = "the stated bound"
_STARTS, _PAIRS = 5, 10
_SETTLE_S, _BLOCK_S = 3.0, 30.0
_RATE_PER_S, _CONNECTIONS = 500.0, 16
# A JVM takes about half a minute of load to settle.
_WARM_UP_S: Final = {"kafka": 30.0, "doorkeeper": 2.0}
_STOP_S: Final = 10.0
_TOPIC_NAMES: Final = [f"topic-{number:04}" for number in range(TOPICS)]
_FIRST: Final = "cluster"
_OTHERS: Final = (
    *("topics", "topics?sort=size", "groups", "requests", "reassignments"),
    *(f"topic?name={_TOPIC_NAMES[0]}", f"records?name={_TOPIC_NAMES[0]}"),
    "group?name=group-0",
)


class Console(NamedTuple):
    """A console that has started: its process and its address."""

    pid: int
    address: str

    @property
    def peak_mb(self) -> float:
        """Return the most memory that it has had resident, in millions of bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return int(value.split()[0]) * 1024 / 1e6
        raise RuntimeError("the kernel does not report VmHWM")


def rows(start: brokers.Start | None = None) -> Iterator[BenchRow]:
    """Yield the rows of a console over a broker, by default Doorkeeper."""
    with (start or _doorkeeper)() as broker:
        _populate(broker)
        broker.pin()
        with on_the_load_cpu():
            yield from _pages(broker)
            yield from _load(broker)


def _doorkeeper() -> AbstractContextManager[Running]:
    """Run a broker whose requests the console can show."""
    return brokers.doorkeeper(settings={"doorkeeper.metrics.port": str(free_port())})


def _populate(broker: Running) -> None:
    clients.create_topic(broker, TOPIC)
    clients.create_topics(broker, _TOPIC_NAMES, PARTITIONS)
    clients.fill(broker, _TOPIC_NAMES, PARTITIONS)
    read = {f"group-{it}": _TOPIC_NAMES[it::GROUPS] for it in range(GROUPS)}
    clients.commit(broker, read, PARTITIONS)
    closed_loop(broker, _CONNECTIONS, _WARM_UP_S[broker.name])


# ---- pages --------------------------------------------------------------------------


def _pages(broker: Running) -> Iterator[BenchRow]:
    first_s, slowest_s = [], []
    for _ in range(_STARTS):
        with _console(broker) as console:
            first_s.append(read_s(console.address, _FIRST))
            slowest_s.append(max(read_s(console.address, it) for it in _OTHERS))
    of = f"{TOPICS:,} topics, {TOPICS * PARTITIONS:,} partitions, {GROUPS} groups"
    yield _bounded(f"first page of a console, {of}", "s", first_s, FIRST_PAGE_S)
    yield _bounded("slowest of its other pages", "s", slowest_s, FIRST_PAGE_S)


def _bounded(name: str, unit: str, values: Sequence[float], bound: float) -> BenchRow:
    """Compare the median with a bound."""
    bounds = [bound] * len(values)
    return paired(name, unit, values, _PEER, bounds, more_is_better=False)


@contextmanager
def _console(broker: Running) -> Iterator[Console]:
    """Start a console; stop it by SIGTERM."""
    command = [sys.executable, "-m", "doorkeeper", "console", "--port", "0"]
    command += ["--bootstrap", broker.bootstrap]
    with _child(command) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("console on "):
            raise RuntimeError(f"the console has not started: {line!r}")
        yield Console(process.pid, line.split()[-1])


@contextmanager
def _child(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process that has the CPU when nothing else wants it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        try:
            yield process
            if process.poll() is not None:
                raise RuntimeError(f"{command} has ended with {process.returncode}")
        finally:
            process.terminate()
            process.wait(_STOP_S)


# ---- load ---------------------------------------------------------------------------


def _load(broker: Running) -> Iterator[BenchRow]:
    with_ms, without_ms, peaks_mb = [], [], []
    for number in range(_PAIRS):
        for is_watched in (False, True) if number % 2 else (True, False):
            if is_watched:
                with _watched(broker) as console:
                    with_ms.append(_block_ms(broker))
                    peaks_mb.append(console.peak_mb)
            else:
                without_ms.append(_block_ms(broker))
    yield _bounded(
        f"memory of a console that is watched for {_SETTLE_S + _BLOCK_S:.0f} s, peak",
        "MB",
        peaks_mb,
        MEMORY_MB,
    )
    ratios = [a / b for a, b in zip(without_ms, with_ms, strict=True)]
    low, high = median_interval(ratios)
    yield BenchRow(
        name=f"p99 of PRODUCE and FETCH at {_RATE_PER_S:.0f}/s, console watched",
        unit="ms",
        ours=statistics.median(with_ms),
        peer="the same broker, without a console",
        theirs=statistics.median(without_ms),
        ratio=statistics.median(ratios),
        ratio_low=low,
        ratio_high=high,
    )


@contextmanager
def _watched(broker: Running) -> Iterator[Console]:
    """Start a console, with a tab of each page."""
    with _console(broker) as console:
        tabs = [sys.executable, "-m", "bench.tabs", console.address, _FIRST, *_OTHERS]
        with _child(tabs):
            yield console


def _block_ms(broker: Running) -> float:
    """Return the p99 of a block, after a settling time."""
    time.sleep(_SETTLE_S)
    frames = [produce_frame(), fetch_frame()]
    return p99_ms(broker, _RATE_PER_S, _CONNECTIONS, _BLOCK_S, kinds=frames)
