"""Kafka Connect workers with a connector that copies lines of files exactly once.

Connect commits the position in a file and the records read before it in one
transaction. The harness restarts failed tasks, as an operator would.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from experiments.processes.loopback import HOST, free_ports

CONNECTOR: Final = "LinesConnector"
_CALL_S: Final = 2.0
_EVERY_S: Final = 1.0
_WORKER: Final = {
    "group.id": "workers",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "-1",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": "-1",
    "offset.storage.partitions": "2",
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": "-1",
    "status.storage.partitions": "1",
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "500",
    "producer.transaction.timeout.ms": "10000",
}
_CONNECTOR: Final = {
    "name": CONNECTOR,
    "connector.class": CONNECTOR,
    "tasks.max": "8",
    "exactly.once.support": "required",
    "transaction.boundary": "connector",
}


def connect_command(
    java: Sequence[str],
) -> Callable[[str, str, Path, str], Sequence[str]]:
    """Return a factory of worker commands, each on its own port."""
    ports: dict[str, int] = {}

    def command(bootstrap: str, name: str, at: Path, seed: str) -> list[str]:
        if name not in ports:
            (ports[name],) = free_ports(1)
        listener = f"http://{HOST}:{ports[name]}"
        (at / f"{name}.rest").write_text(listener)
        file = at / f"{name}.properties"
        properties = {
            **_WORKER,
            "bootstrap.servers": bootstrap,
            "listeners": listener,
        }
        file.write_text("".join(f"{key}={it}\n" for key, it in properties.items()))
        return [*java, "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]

    return command


class Operator:
    """Creates the connector with a task per file, and restarts failed tasks."""

    def __init__(self, at: Path, files: Sequence[Path]) -> None:
        """``at`` is the directory of the workers' commands."""
        self._at = at
        self._config = {**_CONNECTOR, "files": ",".join(map(str, files))}
        self._next_s = 0.0

    def tend(self) -> None:
        """Create the connector or restart failed tasks, if necessary.

        A worker that is down, or busy with a rebalance, is retried at the next call.
        """
        if time.monotonic() < self._next_s:
            return
        for rest in sorted(self._at.glob("*.rest")):
            try:
                self._tend(f"{rest.read_text()}/connectors/{CONNECTOR}")
                break
            except (HTTPException, OSError):
                continue
        self._next_s = time.monotonic() + _EVERY_S

    def _tend(self, address: str) -> None:
        try:
            status = _call("GET", f"{address}/status")
        except HTTPError as error:
            if error.code != 404:
                raise
            _call("PUT", f"{address}/config", self._config)
            return
        parts = [status["connector"], *status["tasks"]]
        if any(each["state"] == "FAILED" for each in parts):
            _call("POST", f"{address}/restart?includeTasks=true&onlyFailed=true")


def _call(method: str, address: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(address, data, headers, method=method)
    with urlopen(request, timeout=_CALL_S) as answer:
        return json.loads(answer.read() or b"{}")
