"""The live world: a fresh broker process per run, real sockets, real files.

The broker has one CPU to itself and the load generator another, so that neither takes
time from the other; on a machine with a single CPU both share it, and the manifest says
so. Every run starts from an empty data directory, which is deleted afterwards. Broker
and generator stamp by the same monotonic clock, so their rows subtract.

Nothing here raises because a run went wrong: a broker that dies or will not stop, and a
generator that is late, are results with a reason; the runner decides. Only a broker
that ends before it listens stops the experiment: its configuration will not do.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.design.config import Experiment
from experiments.load.generator import Address, Target
from experiments.load.trace import Trace
from experiments.processes.children import Child, RunFailed
from experiments.processes.places import Places
from experiments.worlds import generating
from experiments.worlds.joining import LoadEnd, record_run
from experiments.worlds.world import Cell, RunFiles, RunResult, WorldError

# Starting both processes, setting up, joining and writing the rows.
_OVERHEAD_S = 0.8
_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0
_READY = "listening on "
_CONTROLLER = "CONTROLLER"


def make(tick: Callable[[], None]) -> Live:
    """Return this world."""
    return Live(tick)


class Live:
    """Runs cells with real processes; ``tick`` is called once a second meanwhile."""

    name = "live"

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._places = Places.here()

    def environment(self) -> Mapping[str, Any]:
        """Say where the processes run."""
        return self._places.environment()

    def estimate_s(self, experiment: Experiment) -> float:
        """Add to the load's length what a run costs beside it."""
        return experiment.workload.duration_s + _OVERHEAD_S

    def run(self, cell: Cell, trace: Trace, out: RunFiles) -> RunResult:
        """Start a broker, replay the trace to it, stop it, write the joined rows."""
        prefix = f"doorkeeper-{cell.run_id}-"
        with tempfile.TemporaryDirectory(prefix=prefix) as scratch:
            try:
                return self._run(cell, trace, out, Path(scratch))
            except RunFailed as failure:
                return RunResult(
                    valid=False,
                    reason=str(failure),
                    recorded=False,
                    trace_sha256=trace.sha256,
                )

    def _run(self, cell: Cell, replayed: Trace, out: RunFiles, at: Path) -> RunResult:
        generator = generating.start(cell, replayed, at, self._places, self._tick)
        with self._broker(cell, at) as broker, generator as load:
            load.tell(_target(cell, broker).line())
            before = broker.cpu_time()
            summary = json.loads(load.line(generating.patience_s(cell), broker))
            after = broker.cpu_time()
            fault = broker.stop(_STOP_TIMEOUT_S)
        end = LoadEnd(**summary, broker_cpu=after - before, fault=fault)
        seen = generating.observations(at)
        return record_run(self.name, cell, replayed, out, seen, _recording(at), end)

    def _broker(self, cell: Cell, at: Path) -> Child:
        properties = at / "server.properties"
        properties.write_text(_properties(cell, at), encoding="utf-8")
        binding = self._places.binding(self._places.broker).text()
        command = [
            *(sys.executable, "-m", "experiments.processes.child", binding),
            *(sys.executable, "-m", "doorkeeper"),
            *("serve", "--config", str(properties)),
        ]
        return Child("broker", command, at / "broker.err", tick=self._tick)


def _properties(cell: Cell, at: Path) -> str:
    """Return the broker's configuration: the arm's keys, then what the run owns."""
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        # All connections of a load come at once; Kafka's 50 would drop some, and the
        # kernel tries those again only after a second.
        "socket.listen.backlog.size": "1024",
        **cell.experiment.broker_keys(cell.arm),
        "log.dirs": str(at / "data"),
        "doorkeeper.record.file": str(_recording(at)),
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def _target(cell: Cell, broker: Child) -> Target:
    """Wait until the broker listens; return where, for data and for control.

    When it is ready, a broker says ``listening on NAME://host:port`` for each listener.
    """
    keys = cell.experiment.broker_keys(cell.arm)
    control = keys.get("control.plane.listener.name")
    expected = len(keys.get("listeners", "one").split(","))
    if control is None and cell.arm.scheduler in ("planes", "planes-lending"):
        control = _CONTROLLER
        expected += 1
    found: dict[str, Address] = {}
    for _ in range(expected):
        line = _said(cell, broker)
        name, _, address = line.removeprefix(_READY).partition("://")
        host, _, port = address.rpartition(":")
        if not line.startswith(_READY) or not port.isdecimal():
            raise broker.failure(f"said {line!r}, not where it listens")
        found[name] = (host.strip("[]"), int(port))
    data = [address for name, address in found.items() if name != control]
    return Target(data=data[0], control=found.get(control or ""))


def _said(cell: Cell, broker: Child) -> str:
    """Wait for a line from a broker that starts.

    :raises WorldError: if the broker ended: the next one would do so too.
    """
    try:
        return broker.line(_START_TIMEOUT_S)
    except RunFailed as failure:
        if not broker.ended:
            raise
        raise WorldError(f"arm {cell.arm.name!r} cannot start: {failure}") from failure


def _recording(at: Path) -> Path:
    return at / "broker.rows"
