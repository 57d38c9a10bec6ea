"""Measurements of the quantities that theory predicts, one block at a time.

A block is one replication: its requests depend on one another, blocks do not. Each
block therefore gives one value of each quantity, and intervals are over blocks.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.design.capacity import machine_us
from experiments.design.config import Experiment
from experiments.design.world_config import WORLDS
from experiments.load.trace import generate
from experiments.records.recording import Int64s
from experiments.theory.predict import (
    BUSY_SERVERS,
    MEAN_LATENCY,
    MEAN_WAIT,
    P99_WAIT,
    THROUGHPUT,
    WORK_X_WAIT,
)
from experiments.theory.services import Moments
from experiments.worlds.world import MachineTrial, RunFiles, World

_COLUMNS = ["class", "intended_ns", "client_done_ns", "service_ns", "outcome"]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMeasures:
    """One arm's measures in one block; times in seconds.

    ``values`` are by quantity and class. ``path`` is the sum of size times wait over
    all requests, in square nanoseconds, None if any was not served.
    """

    values: Mapping[Key, float]
    moments: Mapping[str, Moments]
    path: int | None


class MeasuredPoint(NamedTuple):
    """A point's name, and its experiment in the time of the replayed trace."""

    name: str
    experiment: Experiment


def replay(world: World, point: MeasuredPoint) -> Iterator[tuple[str, TrialMeasures]]:
    """Run every arm in every block, and yield each run's measures; keep no files.

    :raises RuntimeError: if a run is not valid.
    """
    experiment = point.experiment
    with tempfile.TemporaryDirectory(prefix="doorkeeper-theory-") as scratch:
        files = RunFiles(
            requests=Path(scratch) / "requests", samples=Path(scratch) / "samples"
        )
        for block in range(experiment.blocks):
            trace = generate(experiment, block)
            for arm in experiment.arms:
                trial = MachineTrial(experiment=experiment, block=block, arm=arm)
                result = world.run(trial, trace, files)
                if not result.valid:
                    raise RuntimeError(f"{trial.run_id}: {result.reason}")
                demands_ns = trace.table["demand_ns"].to_numpy()
                yield arm.name, _read(files.requests, point, demands_ns)


def recorded(
    run_dir: Path, point: MeasuredPoint
) -> Iterator[tuple[str, TrialMeasures]]:
    """Yield the measures of each valid run of a recording, block by block.

    Blocks are yielded for all arms of the recording or for none, so that they pair.
    """
    manifest = json.loads((run_dir / "manifest.json").read_text(encoding="utf-8"))
    arms = {arm.name for arm in point.experiment.arms}
    # A handler at a device uses no CPU, so its demand is drawn again instead of read.
    virtual = manifest["world"] == "virtual"
    costs_ns = {} if WORLDS[manifest["world"]].rows else _costs_ns(point)
    blocks: dict[int, list[dict[str, Any]]] = {}
    for run in manifest["runs"]:
        here = run.get("point", "") == point.name
        if run["valid"] and here and run["arm"] in arms:
            blocks.setdefault(run["block"], []).append(run)
    whole = max((len(runs) for runs in blocks.values()), default=0)
    for block, runs in sorted(blocks.items()):
        if len(runs) < whole:
            continue
        if len({run["arm"] for run in runs}) < len(runs):
            raise ValueError(f"block {block} has two runs of an arm that count")
        demanded = None
        if virtual:
            drawn = generate(point.experiment, block).table["demand_ns"]
            demanded = drawn.to_numpy()
        for run in runs:
            rows = run_dir / run["requests"]
            yield run["arm"], _read(rows, point, demanded, costs_ns, run["run_id"])


def _costs_ns(point: MeasuredPoint) -> dict[str, int]:
    """Return the cost of a request of each class at a broker without rows.

    Of several entries with one class the first one is used.
    """
    costs_us = machine_us(point.experiment)
    return {
        entry.reported_class: round(costs_us[entry.name] * 1000)
        for entry in reversed(point.experiment.workload.traffic)
    }


def pooled(blocks: list[TrialMeasures]) -> dict[str, Moments]:
    """Return the moments of each class's service over blocks of one arm."""
    return {
        name: Moments(
            mean=float(np.mean([it.moments[name].mean for it in blocks])),
            square=float(np.mean([it.moments[name].square for it in blocks])),
        )
        for name in blocks[0].moments
        if all(name in it.moments for it in blocks)
    }


def _read(
    path: Path,
    point: MeasuredPoint,
    demands_ns: Int64s | None,
    costs_ns: Mapping[str, int] = MappingProxyType({}),
    run_id: str | None = None,
) -> TrialMeasures:
    """Read a run's rows by ``run_id``, because runs of a session share a file."""
    workload = point.experiment.workload
    window_ns = [round(s * 1e9) for s in (workload.warmup_s, workload.duration_s)]
    if run_id is None:
        rows = pq.read_table(path, columns=_COLUMNS)
    else:
        mine = [("run_id", "==", run_id)]
        rows = pq.read_table(path, columns=_COLUMNS, filters=mine)
    if costs_ns:
        names = rows["class"].to_pylist()
        demands_ns = np.array([costs_ns[name] for name in names], np.int64)
    return measures_of(rows, window_ns, demands_ns)


def measures_of(
    rows: pa.Table, window_ns: list[int], demands_ns: Int64s | None = None
) -> TrialMeasures:
    """Return the measures of one run's rows; only served requests have a wait.

    The service of a request is its drawn demand, if there is one, or else the measured
    CPU time.
    """
    start_ns, end_ns = window_ns
    seconds = (end_ns - start_ns) / 1e9
    served = np.asarray(rows["outcome"].combine_chunks().cast(pa.string())) == "ok"
    classes = np.asarray(rows["class"].combine_chunks().cast(pa.string()))
    intended = rows["intended_ns"].to_numpy()
    done = rows["client_done_ns"].fill_null(-1).to_numpy()
    service = rows["service_ns"].fill_null(0).to_numpy()
    if demands_ns is not None:
        service = np.where(demands_ns > 0, demands_ns, service)
    wait = np.where(served, done - intended - service, 0)
    inside = served & (intended >= start_ns) & (intended < end_ns)
    ended = served & (done >= start_ns) & (done < end_ns)
    values: dict[Key, float] = {
        (BUSY_SERVERS, ""): float(service[inside].sum()) / 1e9 / seconds,
        (WORK_X_WAIT, ""): float(np.dot(service[inside] / 1e9, wait[inside] / 1e9))
        / seconds,
    }
    moments = {}
    for name in dict.fromkeys(classes.tolist()):
        mine = classes == name
        values[THROUGHPUT, name] = float(np.count_nonzero(ended & mine)) / seconds
        waits, sizes = wait[inside & mine] / 1e9, service[inside & mine] / 1e9
        if len(waits):
            values[MEAN_WAIT, name] = float(waits.mean())
            values[MEAN_LATENCY, name] = float(waits.mean() + sizes.mean())
            values[P99_WAIT, name] = float(np.quantile(waits, 0.99))
            moments[name] = Moments(
                mean=float(sizes.mean()), square=float(np.square(sizes).mean())
            )
    path = sum(map(mul, service.tolist(), wait.tolist())) if served.all() else None
    return TrialMeasures(values=values, moments=moments, path=path)
