"""`doorkeeper serve` in its own process, on a free port, for real clients."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_READY = re.compile(r"listening on [A-Z]+://127\.0\.0\.1:(\d+)")


class BrokerProcess:
    """A broker process with a data directory, to be stopped, killed and restarted."""

    def __init__(
        self, directory: Path, *, before: Sequence[str] = (), **settings: str
    ) -> None:
        """``before`` is a command prefix that prepares the broker's environment."""
        self._directory = directory
        self._before = before
        self._settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory / "data"),
            "group.initial.rebalance.delay.ms": "0",
        } | {key.replace("_", "."): value for key, value in settings.items()}
        self.start()

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap address for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start on the port of the first start, and wait until the broker listens."""
        self._launch()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        ready = _READY.search(line)
        assert ready is not None, (line, self.errors())
        self.port = int(ready.group(1))
        address = self._settings["listeners"].rpartition(":")[0]
        self._settings["listeners"] = f"{address}:{self.port}"

    def crash_while_starting(self, after_s: float) -> None:
        """Start, and kill the process after a while, possibly before it listens."""
        self._launch()
        time.sleep(after_s)
        self.kill()

    @staticmethod
    def command(settings: Mapping[str, str]) -> list[str]:
        """Return the command that serves with the given settings."""
        command = [str(Path(sys.executable).parent / "doorkeeper"), "serve"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def _launch(self) -> None:
        command = [*self._before, *self.command(self._settings)]
        self._errors = (self._directory / "broker.err").open("ab")
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def stop(self) -> None:
        """Stop the broker in order."""
        assert self.terminate() == 0, self.errors()

    def terminate(self) -> int:
        """Send SIGTERM; return the exit status."""
        self._end(signal.SIGTERM)
        return self._process.returncode

    def kill(self) -> None:
        """Send SIGKILL, as a crash."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stop the broker if it runs; any output on stderr is an error."""
        if self._process.poll() is None:
            self.stop()
        assert self.errors() == "", self.errors()

    def errors(self) -> str:
        """Return the broker's output on stderr."""
        return (self._directory / "broker.err").read_text()

    def segment_files(self, topic: str) -> list[Path]:
        """Return the log files of all partitions of a topic."""
        return sorted((self._directory / "data").glob(f"{topic}-[0-9]*/*.log"))

    def _end(self, how: signal.Signals) -> None:
        os.kill(self._process.pid, how)
        self._process.wait(timeout=20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
