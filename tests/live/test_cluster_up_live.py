"""``doorkeeper cluster up``: processes that start, are watched, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.live

DOORKEEPER = str(Path(sys.executable).parent / "doorkeeper")
START = [DOORKEEPER, "cluster", "up", "--port", "0"]
STOP_S = 60


class ClusterProcess:
    """A cluster that is ready, and its command's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        said = dict(process.stdout.readline().strip().split("=") for _ in range(2))
        self.zookeeper = said["zookeeper.connect"]
        self.bootstrap = said["bootstrap.servers"]

    def children(self, name: str) -> list[psutil.Process]:
        """Return the processes whose command line has a word."""
        mine = psutil.Process(self.process.pid).children()
        return [it for it in mine if any(name in word for word in it.cmdline())]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end; return its status and what it complained."""
        os.kill(self.process.pid, number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for its end."""
        _, complaints = self.process.communicate(timeout=STOP_S)
        return self.process.returncode, complaints


@contextmanager
def cluster(*options: str) -> Iterator[ClusterProcess]:
    with subprocess.Popen(
        [*START, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield ClusterProcess(process)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_of_it_in_good_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    with cluster("--brokers", "2", "--data", str(tmp_path)) as running:
        children = running.children("")
        assert len(children) == 3
        assert running.end(number) == (0, "")
        assert not any(child.is_running() for child in children)
    # Stopped in order, logs need no recovery.
    for broker in ("broker-0", "broker-1"):
        assert (tmp_path / broker / ".kafka_cleanshutdown").exists()


def test_a_process_that_dies_is_named_and_ends_it(tmp_path: Path) -> None:
    with cluster("--brokers", "2", "--data", str(tmp_path)) as running:
        (victim,) = running.children("broker.id=1")
        victim.kill()
        status, complaints = running.ended()
        assert status == 1
        assert "broker-1 ended with status -9" in complaints
        assert "broker-0" not in complaints


def test_a_setting_that_no_broker_takes_is_named(tmp_path: Path) -> None:
    for setting, status, word in (
        ("num.io.threads=0", 1, "num.io.threads"),
        ("log.dirs=/here", 2, "log.dirs is each broker's own"),
    ):
        found = subprocess.run(
            [*START, "--brokers", "1", "--set", setting],
            capture_output=True,
            text=True,
            timeout=STOP_S,
            check=False,
        )
        assert found.returncode == status
        assert word in found.stderr
