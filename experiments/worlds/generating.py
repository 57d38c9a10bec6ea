"""The load generator of a run whose broker is a process: started, and read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from experiments.load import trace
from experiments.load.generator import Assignment
from experiments.load.replaying import Seen
from experiments.load.trace import Trace
from experiments.processes.children import Child
from experiments.processes.pinning import Pinning
from experiments.worlds.world import Trial

# Beyond the trace's length and the drain: set-up, reading answers, writing rows.
_GRACE_S = 40.0


def start(
    trial: Trial, replayed: Trace, at: Path, pinning: Pinning, tick: Callable[[], None]
) -> Child:
    """Start the generator of a run; it waits to be told its target."""
    trace.store(replayed, at / "trace.parquet")
    assignment = Assignment(
        trace=str(at / "trace.parquet"),
        content=trial.experiment.content(),
        out=str(_observed(at)),
        binding=asdict(pinning.binding(pinning.generator)),
    )
    file = at / "assignment.json"
    file.write_text(json.dumps(asdict(assignment)), encoding="utf-8")
    command = [sys.executable, "-m", "experiments.load.generator", str(file)]
    return Child("generator", command, at / "generator.err", tick=tick)


def patience_s(trial: Trial, replays: int = 1) -> float:
    """Return how long to wait for a generator that replays so often."""
    experiment = trial.experiment
    span_s = experiment.workload.duration_s + experiment.limits.drain_s
    return replays * span_s + _GRACE_S


def observations(at: Path) -> Seen:
    """Read the file of the generator whose run has its files at ``at``."""
    return read(_observed(at))


def read(path: Path) -> Seen:
    """Read a generator's file into arrays."""
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    return {name: table[name].to_numpy() for name in table.column_names}


def _observed(at: Path) -> Path:
    return at / "observed.arrow"
