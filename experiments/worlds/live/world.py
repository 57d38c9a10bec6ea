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
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from experiments import trace
from experiments.config import Experiment
from experiments.generator import Address, Job
from experiments.load import Seen
from experiments.trace import Trace
from experiments.worlds.child import Binding
from experiments.worlds.joining import LoadEnd, record_run
from experiments.worlds.processes import Child, RunFailed
from experiments.worlds.world import Cell, RunFiles, RunResult, WorldError

# Starting both processes, setting up, joining and writing the rows.
_OVERHEAD_S = 0.8
_START_TIMEOUT_S = 20.0
# Beyond the trace's length and the drain: set-up, reading answers, writing rows.
_GENERATOR_GRACE_S = 40.0
_STOP_TIMEOUT_S = 10.0
_NICE = -15
_READY = "listening on "
_CONTROLLER = "CONTROLLER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The CPUs of a run, None where there is only one for both, and the priority."""

    broker: int | None
    generator: int | None
    nice: int

    @classmethod
    def here(cls) -> Places:
        """Choose from the CPUs that this process may use, of two cores if there are."""
        nice = _raised_priority()
        broker, *others = sorted(os.sched_getaffinity(0))
        if not others:
            return cls(broker=None, generator=None, nice=nice)
        core = _siblings(broker)
        apart = [cpu for cpu in others if _siblings(cpu) != core]
        return cls(broker=broker, generator=(apart or others)[0], nice=nice)

    def binding(self, cpu: int | None) -> Binding:
        """Return what binds a child of this process to a CPU."""
        return Binding(parent=os.getpid(), cpu=cpu, nice=self.nice)


class Live:
    """Runs cells with real processes; ``tick`` is called once a second meanwhile."""

    name = "live"

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._places = Places.here()

    def environment(self) -> Mapping[str, Any]:
        """Say where the processes run."""
        broker, generator = self._places.broker, self._places.generator
        pinned = broker is not None
        cpus = {"broker": broker, "generator": generator} if pinned else None
        return {"pinned": pinned, "cpus": cpus, "nice": self._places.nice}

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
        limits, workload = cell.experiment.limits, cell.experiment.workload
        with self._broker(cell, at) as broker, self._load(cell, replayed, at) as load:
            load.tell(json.dumps(_listeners(cell, broker)))
            before = broker.cpu_time()
            patience_s = workload.duration_s + limits.drain_s + _GENERATOR_GRACE_S
            summary = json.loads(load.line(patience_s, broker))
            after = broker.cpu_time()
            fault = broker.stop(_STOP_TIMEOUT_S)
        end = LoadEnd(**summary, broker_cpu=after - before, fault=fault)
        seen = _observations(at)
        return record_run(self.name, cell, replayed, out, seen, _recording(at), end)

    def _broker(self, cell: Cell, at: Path) -> Child:
        properties = at / "server.properties"
        properties.write_text(_properties(cell, at), encoding="utf-8")
        binding = self._places.binding(self._places.broker).text()
        command = [
            *(sys.executable, "-m", "experiments.worlds.child", binding),
            *("serve", "--config", str(properties)),
        ]
        return Child("broker", command, at / "broker.err", tick=self._tick)

    def _load(self, cell: Cell, replayed: Trace, at: Path) -> Child:
        trace.store(replayed, at / "trace.parquet")
        job = Job(
            trace=str(at / "trace.parquet"),
            content=cell.experiment.content(),
            out=str(_observed(at)),
            binding=asdict(self._places.binding(self._places.generator)),
        )
        file = at / "job.json"
        file.write_text(json.dumps(asdict(job)), encoding="utf-8")
        command = [sys.executable, "-m", "experiments.generator", str(file)]
        return Child("generator", command, at / "generator.err", tick=self._tick)


def _siblings(cpu: int) -> str:
    """Return the CPUs that share a core with this one, as the kernel lists them."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    siblings = topology / "thread_siblings_list"
    return siblings.read_text(encoding="utf-8") if siblings.exists() else str(cpu)


def _raised_priority() -> int:
    """Return the nice value that children can be given: the raised one, if allowed."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    except PermissionError:
        return usual
    os.setpriority(os.PRIO_PROCESS, 0, usual)
    return _NICE


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


def _listeners(cell: Cell, broker: Child) -> dict[str, Address | None]:
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
    return {"data": data[0], "control": found.get(control or "")}


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


def _observations(at: Path) -> Seen:
    """Read the generator's file into arrays."""
    with pa.OSFile(str(_observed(at)), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    return {name: table[name].to_numpy() for name in table.column_names}


def _recording(at: Path) -> Path:
    return at / "broker.rows"


def _observed(at: Path) -> Path:
    return at / "observed.arrow"
