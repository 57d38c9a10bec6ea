"""The order in which an experiment runs, and what it does when a run goes wrong.

A randomised complete block design: each block draws one trace, replays it to every arm,
and shuffles the order of the arms from the seed, so that a drift of the machine (heat,
neighbours) falls on all arms alike. A run that does not count (its generator was late,
its broker failed) is kept with the reason and repeated.

A cell's key is the hash of all that its rows depend on: configuration, trace, code. So
``resume`` repeats no cell that is done and every cell whose configuration or code has
changed since. Files get their final names only when they are whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments import trace
from experiments.config import Experiment
from experiments.config_errors import ExperimentError
from experiments.environment import code_sha256
from experiments.manifest import Manifest, now
from experiments.points import Point, points
from experiments.progress import Watcher
from experiments.recording import identity_fault
from experiments.trace import Trace
from experiments.worlds.world import Cell, RunFiles, RunResult, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A cell without a run that counts, and why its last run did not."""

    block: int
    arm: str
    reason: str


def plan(found: Sequence[Point]) -> Iterator[Cell]:
    """Yield the cells of all points in the order in which they run, block by block."""
    header = found[0].experiment.experiment
    for block in range(header.blocks):
        shuffled = list(found)
        random.Random(f"{header.seed}/{block}/points").shuffle(shuffled)
        for point in shuffled:
            yield from _block(point, block)


def _block(point: Point, block: int) -> Iterator[Cell]:
    """Yield a block's cells at one point, the arms in an order of its own."""
    experiment, prefix = point.experiment, _prefix(point)
    arms = list(experiment.all_arms())
    seed = experiment.experiment.seed
    random.Random(f"{prefix}{seed}/{block}/order").shuffle(arms)
    for order, arm in enumerate(arms):
        yield Cell(
            experiment=experiment,
            point=point.name,
            prefix=prefix,
            block=block,
            arm=arm,
            order=order,
        )


def _prefix(point: Point) -> str:
    return "" if point.number is None else f"p{point.number:03d}-"


def cell_key(cell: Cell, world: str, trace_sha256: str, code: str) -> str:
    """Return the hash of everything that the rows of a cell depend on."""
    experiment = cell.experiment
    content, arm = experiment.content(), cell.arm.model_dump(mode="json")
    # Not the other arms, nor what the analysis makes of the rows, nor what another
    # world is told; of the header, the seed has made the trace.
    for section in ("experiment", "arms", "analysis", "virtual", "model"):
        if section != world:
            del content[section]
    if world != "model":
        del arm["model"]
    depends_on = {
        **content,
        "world": world,
        "seed": experiment.experiment.seed,
        "block": cell.block,
        "arm": arm,
        "trace": trace_sha256,
        "code": code,
    }
    text = json.dumps(depends_on, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def run(
    experiment: Experiment,
    directory: Path,
    world: World,
    watcher: Watcher,
    *,
    resume: bool,
) -> list[Missing]:
    """Run every cell that is not done; return those that have no run that counts.

    :raises ExperimentError: if the directory holds an experiment and ``resume`` is off,
        or holds another experiment.
    """
    found = points(experiment)
    manifest = _open(experiment, found, directory, world, resume=resume)
    shas = _draw_traces(found, manifest)
    cells = list(plan(found))
    keys = [
        cell_key(cell, world.name, shas[cell.point, cell.block], code_sha256())
        for cell in cells
    ]
    manifest.supersede({key: cell.point for cell, key in zip(cells, keys, strict=True)})
    manifest.content["plan"] = [
        {
            "cell": key,
            "point": cell.point,
            "block": cell.block,
            "arm": cell.arm.name,
            "order": cell.order,
        }
        for cell, key in zip(cells, keys, strict=True)
    ]
    manifest.save()
    todo = [
        (cell, key)
        for cell, key in zip(cells, keys, strict=True)
        if not manifest.done(key)
    ]
    watcher.planned(len(todo), world.estimate_s(experiment))
    replayed: Trace | None = None
    for cell, key in todo:
        path = _trace_path(directory, cell.prefix, cell.block)
        if replayed is None or replayed.sha256 != shas[cell.point, cell.block]:
            replayed = trace.read(path, cell.block)
        _run_cell(cell, key, replayed, world, watcher, manifest)
    manifest.finish()
    manifest.save()
    return [
        Missing(block=cell.block, arm=cell.arm.name, reason=_last_reason(manifest, key))
        for cell, key in zip(cells, keys, strict=True)
        if not manifest.done(key)
    ]


def _open(
    experiment: Experiment,
    found: Sequence[Point],
    directory: Path,
    world: World,
    *,
    resume: bool,
) -> Manifest:
    """Make a new manifest, or take up the one that is there."""
    fresh = Manifest.new(directory, experiment, found, world.environment())
    old = Manifest.load(directory)
    if old is None:
        return fresh
    if not resume:
        raise ExperimentError(
            str(directory), "holds an experiment; give --resume, or another --out"
        )
    if old.content["name"] != experiment.name:
        raise ExperimentError(
            str(directory), f"holds the experiment {old.content['name']!r}"
        )
    fresh.content["created"] = old.content["created"]
    fresh.content["runs"] = old.runs
    return fresh


def _draw_traces(
    found: Sequence[Point], manifest: Manifest
) -> dict[tuple[str, int], str]:
    """Draw and store the trace of every point and block; return their hashes."""
    shas = {}
    manifest.content["traces"] = []
    for point in found:
        for block in range(point.experiment.experiment.blocks):
            drawn = trace.generate(point.experiment, block)
            path = _trace_path(manifest.directory, _prefix(point), block)
            trace.store(drawn, path)
            shas[point.name, block] = drawn.sha256
            manifest.content["traces"].append(
                {
                    "point": point.name,
                    "block": block,
                    "file": path.relative_to(manifest.directory).as_posix(),
                    "sha256": drawn.sha256,
                    "requests": len(drawn),
                }
            )
    return shas


def _run_cell(
    cell: Cell,
    key: str,
    replayed: Trace,
    world: World,
    watcher: Watcher,
    manifest: Manifest,
) -> None:
    """Run a cell until a run counts or its retries are used up."""
    for _ in range(1 + cell.experiment.limits.retries):
        cell = replace(cell, attempt=manifest.attempts(cell))
        watcher.started(cell)
        started, began = now(), time.monotonic()
        load_average = os.getloadavg()[0]
        final = _files(manifest.directory, cell.run_id)
        partial = RunFiles(
            requests=final.requests.with_suffix(".partial"),
            samples=final.samples.with_suffix(".partial"),
        )
        result = _checked(world.run(cell, replayed, partial), replayed)
        if result.recorded:
            os.replace(partial.requests, final.requests)
            os.replace(partial.samples, final.samples)
        seconds = time.monotonic() - began
        manifest.add(
            cell,
            key,
            result,
            final if result.recorded else None,
            started=started,
            seconds=seconds,
            load_average=load_average,
        )
        manifest.save()
        watcher.ended(cell, result, seconds)
        if result.valid:
            return


def _checked(result: RunResult, replayed: Trace) -> RunResult:
    """Hold a result against its trace: same hash, and every request accounted for."""
    if not result.valid:
        return result
    fault = identity_fault(result.counts, len(replayed))
    if result.trace_sha256 != replayed.sha256:
        fault = f"replayed the trace {result.trace_sha256}, not {replayed.sha256}"
    return replace(result, valid=not fault, reason=fault)


def _files(directory: Path, run_id: str) -> RunFiles:
    files = RunFiles(
        requests=directory / "requests" / f"{run_id}.parquet",
        samples=directory / "samples" / f"{run_id}.parquet",
    )
    for path in (files.requests, files.samples):
        path.parent.mkdir(parents=True, exist_ok=True)
    return files


def _trace_path(directory: Path, prefix: str, block: int) -> Path:
    point = f"point-{prefix[1:]}" if prefix else ""
    return directory / "traces" / f"{point}block-{block:03d}.parquet"


def _last_reason(manifest: Manifest, key: str) -> str:
    """Return why the last run of a cell did not count."""
    mine = [run for run in manifest.runs if run["cell"] == key]
    return str(mine[-1]["reason"])
