"""Processes of a program that are killed, and restarted whenever they end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_TAIL: Final = 4_000
# Avoids a busy loop if a program exits immediately.
_PAUSE_S: Final = 0.3


class Instance:
    """A sequence of processes with one output file."""

    def __init__(self, command: Callable[[int], Sequence[str]], log: Path) -> None:
        """``command`` makes a command from the number of the start."""
        self._command = command
        self._log = log
        self._starts = 0
        self._ended_s: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # Exits without a kill, such as after a fatal error.
        self.ends = 0

    def start(self) -> None:
        """Start a process."""
        with self._log.open("ab") as log:
            log.write(b"---- start %d\n" % self._starts)
            self._process = subprocess.Popen(
                self._command(self._starts), stdout=log, stderr=log
            )
        self._starts += 1
        self._ended_s = None

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def tend(self) -> None:
        """Restart the process if it exited without a kill."""
        if self._process is None or self._process.poll() is None:
            return
        if self._ended_s is None:
            self._ended_s = time.monotonic()
            self.ends += 1
        elif time.monotonic() > self._ended_s + _PAUSE_S:
            self.start()

    def tail(self) -> str:
        """Return the last output of the processes."""
        return self._log.read_text(errors="replace")[-_TAIL:]
