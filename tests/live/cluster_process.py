"""``doorkeeper cluster up`` as a process of its own, on free ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_DOORKEEPER = str(Path(sys.executable).parent / "doorkeeper")
_START = [_DOORKEEPER, "cluster", "up", "--port", "0"]
_STOP_S = 60


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
        _, complaints = self.process.communicate(timeout=_STOP_S)
        return self.process.returncode, complaints


@contextmanager
def cluster(*options: str) -> Iterator[ClusterProcess]:
    """Run a cluster until the end of the block, which kills it if it still runs."""
    with subprocess.Popen(
        [*_START, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield ClusterProcess(process)
        finally:
            process.kill()
