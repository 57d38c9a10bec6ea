"""``doorkeeper theory``: comparison of runs or recordings with closed forms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.design.config import Experiment, parse
from experiments.design.config_errors import ExperimentError
from experiments.design.points import PlannedPoint, planned_points
from experiments.design.world_config import WORLDS
from experiments.running.world_registry import make_world
from experiments.theory.compare import Comparison, PredictionRow, compare
from experiments.theory.latency_ratios import ratios, write
from experiments.theory.measure import MeasuredPoint, TrialMeasures, recorded, replay
from experiments.theory.predict import BUSY_SERVERS, THROUGHPUT

# A world that takes longer for the whole experiment runs only on request.
_PATIENCE_S = 60.0
# Exceptions for a manifest or a file of requests that no run has written.
_DAMAGED = (AttributeError, TypeError, ValueError, ArithmeticError, RecursionError)
_STYLES = {"agrees": "green", "differs": "red", "open": "yellow", "not judged": "dim"}


def run(
    experiment: Experiment,
    run_dirs: Sequence[Path],
    worlds: Sequence[str],
    margin: float,
    console: Console,
    out: Path | None = None,
) -> bool:
    """Print the table of every world; return whether no prediction is contradicted.

    Without recordings ``worlds`` are run; by default the model, and the virtual world
    if it supports the experiment and is quick. ``out`` receives the ratios to the
    baseline, judged by the config's margin for worlds.

    :raises ExperimentError: if a recording is not of this experiment's shape, or the
        experiment has several brokers.
    """
    if experiment.cluster is not None:
        raise ExperimentError("cluster", "closed forms describe a single broker")
    found, relative = [], []
    apart = experiment.analysis.margin_worlds
    for world, point, blocks in _blocks(experiment, run_dirs, worlds, console):
        arguments = point.experiment, world, point.name, blocks
        found.append(compare(*arguments, margin))
        relative += ratios(*arguments, apart)
    _print(found, console)
    summary = _sum(found, margin)
    console.print(summary, highlight=False)
    if out is not None:
        write(relative, apart, summary, out)
        console.print(f"written to {out}", markup=False, highlight=False)
    return not any(comparison.contradicted for comparison in found)


def _blocks(
    experiment: Experiment,
    run_dirs: Sequence[Path],
    worlds: Sequence[str],
    console: Console,
) -> Iterator[tuple[str, MeasuredPoint, dict[str, list[TrialMeasures]]]]:
    """Yield every arm's measures by block, world by world and point by point."""
    for run_dir in run_dirs:
        yield from _recorded(experiment, run_dir)
    if run_dirs:
        return
    for name in worlds or _default_worlds(experiment, console):
        there = experiment.with_world(name)
        world = make_world(name, lambda: None)
        for planned in planned_points(there):
            point = MeasuredPoint(planned.name, planned.experiment)
            with console.status(f"{name} {point.name}"):
                blocks = _by_arm(replay(world, point))
            yield name, point, blocks


def _recorded(
    experiment: Experiment, run_dir: Path
) -> list[tuple[str, MeasuredPoint, dict[str, list[TrialMeasures]]]]:
    """Return every arm's measures by block, at each point of a recording.

    :raises ExperimentError: if it is damaged, or of another experiment.
    """
    try:
        manifest = json.loads((run_dir / "manifest.json").read_bytes())
        # The experiment as recorded, not the present file.
        ran = parse(manifest["config"])
        if ran.name != experiment.name:
            raise ExperimentError(
                str(run_dir), f"is a recording of {ran.name}, not of {experiment.name}"
            )
        world = manifest["world"]
        placed = [_on_its_machine(it, world, run_dir) for it in planned_points(ran)]
        return [(world, it, _by_arm(recorded(run_dir, it))) for it in placed]
    except ExperimentError:
        raise
    except (OSError, LookupError, *_DAMAGED) as error:
        fault = f"damaged, or no recording: {type(error).__name__}: {error}"
        raise ExperimentError(str(run_dir), fault) from error


def _on_its_machine(point: PlannedPoint, world: str, run_dir: Path) -> MeasuredPoint:
    """Return a point in the time of the machine that replayed its trace.

    :raises ExperimentError: if its services were those of a calibrated machine.
    """
    if point.experiment.machine is not None and WORLDS[world].computed:
        fault = "was computed with --calibration, and theory knows nominal costs only"
        raise ExperimentError(str(run_dir), fault)
    return MeasuredPoint(point.name, point.on_machine())


def _by_arm(
    runs: Iterator[tuple[str, TrialMeasures]],
) -> dict[str, list[TrialMeasures]]:
    blocks: dict[str, list[TrialMeasures]] = {}
    for arm, measures in runs:
        blocks.setdefault(arm, []).append(measures)
    return blocks


def _default_worlds(experiment: Experiment, console: Console) -> list[str]:
    found = planned_points(experiment)
    traffic = [entry for it in found for entry in it.experiment.workload.traffic]
    if any(entry.service is None for entry in traffic):
        return ["model"]
    virtual = make_world("virtual", lambda: None)
    runs = experiment.blocks * len(experiment.arms)
    seconds = runs * sum(virtual.estimate_s(point.experiment) for point in found)
    if seconds <= _PATIENCE_S:
        return ["model", "virtual"]
    console.print(
        f"the virtual world would take about {seconds / 60:.0f} minutes: "
        "--world virtual runs it",
        highlight=False,
    )
    return ["model"]


def _print(found: Sequence[Comparison], console: Console) -> None:
    table = Table()
    for name in ("world", "point", "arm", "class", "quantity"):
        table.add_column(name)
    for name in ("theory", "measured", "interval", "off by"):
        table.add_column(name, justify="right")
    table.add_column("")
    rows = [row for comparison in found for row in comparison.rows]
    for row in rows:
        table.add_row(*_cells(row))
    if not any(row.point for row in rows):
        table.columns.pop(1)
    console.print(table)
    for silence in (it for each in found for it in each.silences):
        named = (silence.world, silence.point, silence.arm)
        where = " ".join(part for part in named if part)
        console.print(f"{where}: no closed form ({silence.reason})", highlight=False)


def _sum(found: Sequence[Comparison], margin: float) -> str:
    """Return a sentence that summarises all predictions."""
    rows = [row for comparison in found for row in comparison.rows]
    count = Counter(row.verdict for row in rows)
    judged = len(rows) - count["not judged"]
    return (
        f"predictions: {judged}; met within {margin:.0%}: {count['agrees']}, "
        f"not met: {count['differs']}, open, with intervals too wide to decide: "
        f"{count['open']}; all intervals of a world hold at once"
    )


def _cells(row: PredictionRow) -> list[str]:
    head = [row.world, row.point, row.arm, row.reported or "all", row.quantity]
    verdict = f"[{_STYLES[row.verdict]}]{row.verdict}[/]"
    if not row.predicted:
        return [*head, "0", f"{row.measured:.1e}", "", "", verdict]
    unit, scale = _unit(row.quantity)
    low, high = row.measured - row.half, row.measured + row.half
    return [
        *head,
        f"{row.predicted * scale:.4g}{unit}",
        f"{row.measured * scale:.4g}{unit}",
        f"{low * scale:.4g} to {high * scale:.4g}",
        f"{row.off:+.2%}",
        verdict,
    ]


def _unit(quantity: str) -> tuple[str, float]:
    if quantity == BUSY_SERVERS:
        return "", 1.0
    return ("/s", 1.0) if quantity == THROUGHPUT else (" ms", 1e3)
