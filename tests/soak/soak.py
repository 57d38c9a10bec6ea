"""`make soak`: a live broker under churn, and whether it gives everything back.

Topics, groups, members and connections come and go under retention, compaction and
load. After a warm-up, and again at the end, all clients leave and all that they made is
deleted: memory, descriptors, Trio's tasks and files must then be what they were. On the
loopback interface, bounded in time.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import tempfile
import time
import urllib.request
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka.admin import AdminClient

from tests.live.broker_process import BrokerProcess
from tests.soak.churn import prepare, settled
from tests.soak.clients import Clients

# Upkeep in seconds instead of minutes, so that it happens while something is going on.
SETTINGS: Final = {
    "num_partitions": "3",
    "log_initial_task_delay_ms": "1000",
    "log_retention_check_interval_ms": "2000",
    "log_cleaner_backoff_ms": "2000",
    "log_segment_delete_delay_ms": "1000",
    "log_flush_offset_checkpoint_interval_ms": "3000",
    "offsets_topic_num_partitions": "4",
    "offsets_topic_segment_bytes": "300000",
    "offsets_retention_minutes": "1",
    "offsets_retention_check_interval_ms": "3000",
    "group_min_session_timeout_ms": "1000",
    "connections_max_idle_ms": "20000",
    "producer_id_expiration_ms": "30000",
    "auto_create_topics_enable": "false",
}
# Beyond the offsets' retention, and producers' ids'.
_REST_S: Final = 100
_SAMPLE_S: Final = 10
_TASKS = re.compile(r"^doorkeeper_trio_tasks (\d+)", re.MULTILINE)
# What a process of this kind may keep more than before: arenas that are not full, and
# files of the topics that stay (their number follows from how they rolled).
_RSS_MORE, _RSS_MORE_MB, _FDS_MORE = 0.15, 12, 24
# The event loop's, eight for devices that begin one by one as they are needed and stay,
# and a few that Trio keeps for a while.
_THREADS_MOST: Final = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources that the broker holds at one moment."""

    minute: float
    rss_mb: float
    descriptors: int
    tasks: int
    threads: int
    logs: int


class Soak:
    """One broker, its churn, and the samples taken of it."""

    def __init__(self, directory: Path, seed: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._metrics_port = free.getsockname()[1]
        self.broker = BrokerProcess(
            directory,
            doorkeeper_metrics_port=str(self._metrics_port),
            **SETTINGS,
        )
        self.clients = Clients(self.broker.port, seed)
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        prepare(self.admin)
        self.samples: list[Sample] = []
        self._data = directory / "data"
        self._process = psutil.Process(self.broker.pid)
        self._began = time.monotonic()

    def sample(self) -> Sample:
        """Look at the broker."""
        url = f"http://127.0.0.1:{self._metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found = _TASKS.search(answer.read().decode())
        assert found is not None
        sample = Sample(
            minute=(time.monotonic() - self._began) / 60,
            rss_mb=self._process.memory_info().rss / 1e6,
            descriptors=self._process.num_fds(),
            tasks=int(found[1]),
            threads=self._process.num_threads(),
            logs=sum(path.is_dir() for path in self._data.iterdir()),
        )
        self.samples.append(sample)
        print(" ".join(f"{value:>11.1f}" for value in astuple(sample)), flush=True)
        return sample

    def run(self, seconds: float) -> None:
        """Run all load and faults for a while."""
        ends = time.monotonic() + seconds
        self.clients.start()
        while (left := ends - time.monotonic()) > 0 and not self.clients.faults:
            time.sleep(min(left, _SAMPLE_S))
            self.sample()
            self.clients.look()
        self.clients.stop()

    def rest(self, at_most_s: float, wanted: Sample | None = None) -> Sample:
        """Delete what is left of the churn; return the first sample that is calm.

        That is one that holds no more than ``wanted``, or the last one.
        """
        topics = self.admin.list_topics(timeout=20).topics
        left = [name for name in topics if "churn" in name]
        if left:
            settled(self.admin.delete_topics(left))
        ends = time.monotonic() + at_most_s
        while True:
            time.sleep(_SAMPLE_S)
            sample = self.sample()
            calm = wanted is not None and not kept(wanted, sample)
            if calm or time.monotonic() > ends:
                return sample


def kept(before: Sample, after: Sample) -> list[str]:
    """Return what there is more of than there may be."""
    allowed = {
        "rss_mb": before.rss_mb * (1 + _RSS_MORE) + _RSS_MORE_MB,
        "descriptors": before.descriptors + _FDS_MORE,
        "tasks": before.tasks,
        "threads": max(before.threads, _THREADS_MOST),
        "logs": before.logs,
    }
    return [
        f"{name}: {getattr(before, name):.1f}, then {getattr(after, name):.1f}"
        for name, most in allowed.items()
        if getattr(after, name) > most
    ]


def soak(
    directory: Path, minutes: float, seed: int, rest_s: float = _REST_S
) -> list[str]:
    """Soak a broker; return what is wrong, and print a table on the way."""
    held = Soak(directory, seed)
    print(" ".join(f"{field.name:>11}" for field in fields(Sample)))
    held.run(max(minutes * 60 / 10, 20))
    before = held.rest(rest_s)
    held.run(minutes * 60)
    after = held.rest(rest_s, before)
    held.broker.close()
    faults = [*held.clients.faults, *kept(before, after)]
    print(f"seed {seed}, {minutes} minutes: {dict(held.clients.done)}")
    print(f"  before {before}\n  after  {after}")
    for fault in faults:
        print(f"  {fault}")
    return faults


def main() -> None:
    """Soak for as long as was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        faults = soak(Path(directory), chosen.minutes, chosen.seed)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
