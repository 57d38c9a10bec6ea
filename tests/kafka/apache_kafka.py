"""Apache Kafka as a process: one KRaft node, both broker and controller."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from experiments.processes.loopback import free_ports
from experiments.worlds.kafka.apache_kafka import CLUSTER_ID, server_properties
from tests.kafka.java_tools import KafkaPrograms

_START_SECONDS, _STOP_SECONDS = 180, 60


class ApacheKafka:
    """One node with a new directory, listening on ``port``."""

    def __init__(
        self, programs: KafkaPrograms, directory: Path, **settings: str
    ) -> None:
        self.directory = directory / "kafka"
        self.port, controller_port = free_ports(2)
        file = directory / "kafka.properties"
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        # On a slow machine the controller must not fence the broker and begin a new
        # leader epoch.
        dotted["broker.session.timeout.ms"] = str(1000 * _START_SECONDS)
        file.write_text(
            server_properties(self.directory, self.port, controller_port, dotted)
        )
        programs.succeed("kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(file))
        self._log = directory / "kafka.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                programs.command("kafka-server-start", str(file)),
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_started()
        except BaseException:
            self.kill()
            raise

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap address for clients."""
        return f"127.0.0.1:{self.port}"

    def _wait_started(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while "Kafka Server started" not in self._log.read_text():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop in order, so that all data is in the files."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=_STOP_SECONDS)

    def kill(self) -> None:
        """Kill the process at once."""
        self._process.kill()
        self._process.wait(timeout=_STOP_SECONDS)
