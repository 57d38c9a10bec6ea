"""``doorkeeper cluster up`` in its own process, on free ports."""

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
    """A running cluster and the process of its command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        said = dict(process.stdout.readline().strip().split("=") for _ in range(2))
        self.zookeeper = said["zookeeper.connect"]
        self.bootstrap = said["bootstrap.servers"]

    def children(self, name: str) -> list[psutil.Process]:
        """Return the child processes with ``name`` in their command line."""
        mine = psutil.Process(self.process.pid).children()
        return [it for it in mine if any(name in word for word in it.cmdline())]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit status and the output on stderr."""
        os.kill(self.process.pid, number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and the output on stderr."""
        _, complaints = self.process.communicate(timeout=_STOP_S)
        return self.process.returncode, complaints


@contextmanager
def cluster(*options: str) -> Iterator[ClusterProcess]:
    """Run a cluster during the block; kill it at the end if it still runs."""
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
