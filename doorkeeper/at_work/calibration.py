"""Calibration by ``doorkeeper calibrate``, and before an experiment."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.design import calibration, capacity, config
from experiments.design.calibration import Calibration, Cost
from experiments.design.config import Experiment
from experiments.design.worlds import WORLDS
from experiments.records.environment import code, environment, now
from experiments.running.calibrate import SESSIONS, calibrate
from experiments.running.progress import ProgressBar
from experiments.running.runner import refuse_taken
from experiments.running.worlds import make_world

FILE = "calibration.json"


def run(
    path: Path, world: str, sessions: int, out: Path | None, console: Console
) -> None:
    """Calibrate a config in a world, print what was found, and write it to ``out``.

    :raises experiments.design.config_errors.ExperimentError: if the config will not do.
    :raises experiments.worlds.world.WorldError: if nothing could be measured.
    """
    experiment = config.load(path)
    config.check_broker_keys(experiment)
    command = f"doorkeeper calibrate {path.name}"
    if sessions != SESSIONS:
        command += f" --sessions {sessions}"
    found = _measure(experiment, world, command, console, sessions)
    console.print(_table(experiment, found))
    there = experiment.with_machine(found)
    mean_us = capacity.mean_request_us(capacity.in_rates(there))
    if experiment.workload.in_shares and mean_us is not None:
        console.print(
            f"The mean request costs {mean_us:.0f} us, and traces are stretched by "
            f"{capacity.stretch(there):.3f}.",
            highlight=False,
        )
    if out is not None:
        calibration.write(found, out)
        console.print(f"written to {out}", markup=False, highlight=False)


def for_machine(
    experiment: Experiment,
    directory: Path,
    given: Path | None,
    console: Console,
    *,
    resume: bool,
) -> Experiment:
    """Return the experiment with the costs of the machine that it is to run on.

    Those of the file that is given; those measured before, when an experiment goes on;
    and where the world measures the machine and loads are shares of it, those that are
    measured now. In other worlds requests have their nominal costs.

    :raises experiments.design.config_errors.ExperimentError: if the file is no
        calibration of this traffic, or the directory holds an experiment.
    """
    if given is not None:
        return experiment.with_machine(calibration.read(given))
    world = experiment.experiment.world
    if WORLDS[world].computed or not experiment.workload.in_shares:
        return experiment
    refuse_taken(directory, experiment, resume=resume)
    known = directory / FILE
    if not known.exists():
        console.print("calibrating: what requests cost on this machine")
        calibration.write(_measure(experiment, world, "experiment run", console), known)
    return experiment.with_machine(calibration.read(known))


def _measure(
    experiment: Experiment,
    world: str,
    command: str,
    console: Console,
    sessions: int = SESSIONS,
) -> Calibration:
    machine, sources = environment(), code()
    source = (
        f"{command} --world {world}, {now()[:10]}, {machine['cpu_model']}, "
        f"Python {machine['python']}, commit {str(sources['commit'])[:10]}"
    )
    with ProgressBar(console) as progress:
        there = make_world(world, progress.tick)
        return calibrate(experiment, there, progress, source, sessions)


def _table(experiment: Experiment, found: Calibration) -> Table:
    """Return the costs with their intervals, next to the nominal ones."""
    nominal = capacity.nominal_us(experiment)
    table = Table(caption="CPU time of the broker's process per request")
    table.add_column("traffic")
    for column in ("us a request", "95 % CI", "of nominal"):
        table.add_column(column, justify="right")
    for entry in experiment.workload.traffic:
        cost = found.costs[entry.name]
        share = cost.mean_us / nominal[entry.name] if entry.name in nominal else None
        of_nominal = "" if share is None else f"{share:.2f}"
        table.add_row(entry.name, f"{cost.mean_us:.1f}", _interval(cost), of_nominal)
    if found.read is not None:
        read = found.read
        table.add_row("of each: reading", f"{read.mean_us:.1f}", _interval(read), "")
    return table


def _interval(cost: Cost) -> str:
    if cost.low_us is None or cost.high_us is None:
        return ""
    return f"{cost.low_us:.1f} to {cost.high_us:.1f}"
