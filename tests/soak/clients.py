"""Churn in a child process with a watchdog.

librdkafka can hang while a consumer is destroyed, for example by issue 5476 of
confluentinc/librdkafka (two locks, taken in either order). confluent-kafka holds the
interpreter lock meanwhile. The clients therefore run in another process than the
observer of the broker. A process without output for long is killed and replaced.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import IO, Final

# A process prints every second; this limit allows for a busy machine.
_SILENCE_S: Final = 60.0
_STOP_S: Final = 120.0
FROZEN = "clients that stood still"


class Clients:
    """The clients of a soak, with the ``done`` counts and ``faults`` printed so far."""

    def __init__(self, port: int, seed: int) -> None:
        self.command = [sys.executable, "-m", "tests.soak.churn", str(port), str(seed)]
        self._process: subprocess.Popen[str] | None = None
        self._ear: threading.Thread | None = None
        self._heard = 0.0
        self._told: Counter[str] = Counter()
        self._before: Counter[str] = Counter()
        self.faults: list[str] = []
        self.rounds = 0

    @property
    def done(self) -> Counter[str]:
        """Counts of each operation, over all processes."""
        return self._before + self._told

    def start(self) -> None:
        """Start the clients."""
        self.rounds += 1
        self._before, self._told = self.done, Counter()
        self._heard = time.monotonic()
        self._process = subprocess.Popen(
            [*self.command, str(self.rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._ear = threading.Thread(target=self._listen, args=[self._process.stdout])
        self._ear.start()

    def look(self) -> None:
        """Replace a process that hangs."""
        if time.monotonic() - self._heard > _SILENCE_S:
            self._kill()
            self.start()

    def stop(self) -> None:
        """Stop all clients."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._kill()
            return
        self._join()
        if code:
            self.faults.append(f"the clients' process ended with {code}")

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._join()
        self._before[FROZEN] += 1

    def _join(self) -> None:
        assert self._ear is not None
        assert self._process is not None
        self._ear.join()
        # Also closes its pipes.
        with self._process:
            pass

    def _listen(self, said: IO[str]) -> None:
        for line in said:
            words = json.loads(line)
            self._told = Counter(words["done"])
            self.faults += words["faults"]
            self._heard = time.monotonic()
