"""`make soak`: a live broker under churn, which must release all resources.

Topics, groups, members and connections are created and deleted under retention,
compaction and load. After a warm-up, and again at the end, all clients leave and their
topics and groups are deleted. Memory, descriptors, Trio's tasks and files must then be
the same. The soak uses the loopback interface and is bounded in time.
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

# Upkeep every few seconds instead of minutes, so it runs under load.
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
# Longer than the retention of offsets and of producer ids.
_REST_S: Final = 100
_SAMPLE_S: Final = 10
_TASKS = re.compile(r"^doorkeeper_trio_tasks (\d+)", re.MULTILINE)
# Allowed growth of a process: memory arenas that are not full, and files of permanent
# topics, whose number depends on how segments rolled.
_RSS_MORE, _RSS_MORE_MB, _FDS_MORE = 0.15, 12, 24
# The event loop's thread, eight device threads that start on demand and stay, and a few
# that Trio caches.
_THREADS_MOST: Final = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of the broker at one moment."""

    minute: float
    rss_mb: float
    descriptors: int
    tasks: int
    threads: int
    logs: int


class Soak:
    """One broker, its churn, and samples of its resources."""

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
        """Sample the broker's resources."""
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
        """Delete the topics and groups of the churn; return a sample at rest.

        The sample is the first one within ``wanted``, or the last one.
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
    """Return the resources that exceed their allowed growth."""
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
    """Soak a broker; print a table on the way, and return the faults."""
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
    """Soak for the chosen time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        faults = soak(Path(directory), chosen.minutes, chosen.seed)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
