"""The output of ``doorkeeper calibrate`` and ``doorkeeper experiment``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.design import calibration as calibrations
from experiments.design import capacity, config, config_file
from experiments.design.calibration import Calibration, Cost
from experiments.design.config import Experiment
from experiments.design.config_errors import ExperimentError
from experiments.design.points import Point, factors, points
from experiments.design.world_config import WORLDS
from experiments.running import launching
from experiments.running.bisection import further_levels
from experiments.running.calibrate import SESSIONS
from experiments.running.launching import Connect
from experiments.running.pilot import sessions_needed
from experiments.running.progress import ProgressBar
from experiments.running.runner import arms_in_order
from experiments.running.units import Missing
from experiments.running.world_registry import make_world
from experiments.worlds.world import World


def calibrate(
    path: Path, world: str, sessions: int, out: Path | None, console: Console
) -> None:
    """Calibrate a config in a world, print the costs, and write them to ``out``.

    :raises experiments.design.config_errors.ExperimentError: if the config is invalid.
    :raises experiments.worlds.world.WorldError: if nothing could be measured.
    """
    experiment = config_file.load(path)
    if experiment.workload.trace is not None:
        fault = "the service times are those of the file; there is nothing to calibrate"
        raise ExperimentError("workload.trace", fault)
    config.check_broker_keys(experiment)
    command = f"doorkeeper calibrate {path.name}"
    if sessions != SESSIONS:
        command += f" --sessions {sessions}"
    found = launching.measure(experiment, world, command, console, sessions)
    console.print(_costs(experiment, found))
    there = experiment.with_machine(found)
    mean_us = capacity.mean_request_us(capacity.in_rates(there))
    if experiment.workload.in_shares and mean_us is not None:
        console.print(
            f"The mean request costs {mean_us:.0f} us, and traces are stretched by "
            f"{capacity.stretch(there):.3f}.",
            highlight=False,
        )
    if out is not None:
        calibrations.write(found, out)
        console.print(f"written to {out}", markup=False, highlight=False)


def _costs(experiment: Experiment, found: Calibration) -> Table:
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


def run_experiment(
    experiment: Experiment,
    directory: Path,
    console: Console,
    *,
    calibration: Path | None = None,
    resume: bool,
    executor: str | None = None,
    workers: int | None = None,
    connect: Connect | None = None,
) -> bool:
    """Run an experiment; return whether every trial has a valid run.

    ``calibration`` is a file written by ``doorkeeper calibrate``.
    """
    for caution in cautions(experiment):
        console.print(caution, highlight=False)
    there = launching.for_machine(
        experiment, directory, calibration, console, resume=resume
    )
    with ProgressBar(console) as progress:
        missing = launching.run_experiment(
            there,
            directory,
            progress,
            resume=resume,
            executor=executor,
            workers=workers,
            connect=connect,
        )
    for trial in missing:
        console.print(_missing(experiment, trial), markup=False)
    console.print(f"recorded in {directory}", markup=False)
    if missing:
        console.print("--resume repeats the runs that do not count, and no others")
    return not missing


def _missing(experiment: Experiment, trial: Missing) -> str:
    """Return one line about a trial without a valid run."""
    if experiment.sessions is not None:
        session = experiment.session_of(trial.block)
        return f"session {session}: no round counts ({trial.reason})"
    where = f"{trial.point}, block {trial.block}".removeprefix(", ")
    return f"{where}, {trial.arm}: no run counts ({trial.reason})"


def describe(experiment: Experiment, console: Console) -> None:
    """Print the trials of an experiment, and their duration."""
    header = experiment.experiment
    world = make_world(header.world, lambda: None)
    arms, found = experiment.all_arms(), points(experiment)
    console.print(f"{header.name}: {header.title}", highlight=False)
    table = Table()
    for column in ("arm", "scheduler", "broker keys", "runs"):
        table.add_column(column)
    runs = len(found) * experiment.blocks
    for arm in arms:
        keys = ", ".join(f"{key}={value}" for key, value in arm.set.items())
        table.add_row(arm.name, arm.scheduler, keys, str(runs))
    console.print(table)
    for factor, levels in factors(found).items():
        console.print(f"{factor}: {', '.join(levels)}", highlight=False)
    if experiment.sweep is None and experiment.sessions is None:
        for block in range(experiment.blocks):
            order = [arm.name for arm in arms_in_order(experiment, block)]
            console.print(f"block {block}: {', '.join(order)}", highlight=False)
    if experiment.sessions is not None:
        primary, quantile = experiment.primary
        metric = f"configured metric: p{quantile * 100:g} of {primary}"
        console.print(metric, highlight=False)
    for caution in cautions(experiment):
        console.print(caution, highlight=False)
    lasting = _lasting(found, world, further_levels(experiment))
    console.print(f"{size(experiment)}, {lasting}", highlight=False)


def advise(
    experiment: Experiment, pilot: Path, precision: float, console: Console
) -> None:
    """Print the number of sessions that each arm needs, from a pilot.

    :raises ExperimentError: if the pilot cannot be used.
    """
    found = sessions_needed(pilot, precision, experiment.analysis.alpha)
    primary, quantile = experiment.primary
    table = Table(
        caption=f"p{quantile * 100:g} of {primary}, ratio to "
        f"{experiment.experiment.baseline}, {precision:.3g} to either side"
    )
    for column in ("arm", "pilot sessions", "sd of log ratio", "sessions needed"):
        table.add_column(column, justify="right")
    for needed in found:
        table.add_row(
            needed.arm,
            str(needed.pilot_sessions),
            f"{needed.deviation:.3f}",
            str(needed.sessions),
        )
    console.print(table)
    count = max(it.sessions for it in found)
    console.print(f"[sessions] count = {count}", markup=False, highlight=False)


def size(experiment: Experiment) -> str:
    """Return the number of an experiment's runs, and its factors.

    The levels of a bisection follow from its runs, so their number is a bound.
    """
    arms, stated = experiment.all_arms(), len(points(experiment))
    most = stated + further_levels(experiment)
    factors_ = [f"{experiment.blocks} blocks", f"{len(arms)} arms"]
    if experiment.sessions is not None:
        sessions = experiment.sessions
        factors_[:1] = [f"{sessions.count} sessions", f"{sessions.rounds} rounds"]
    if experiment.sweep is not None:
        factors_.insert(0, f"{_range(str(stated), str(most))} points")
    of_point = experiment.blocks * len(arms)
    runs = _range(str(stated * of_point), str(most * of_point))
    world = experiment.experiment.world
    return f"{' x '.join(factors_)} = {runs} runs in the {world} world"


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def cautions(experiment: Experiment) -> Iterator[str]:
    """Yield a sentence if no measured difference can become significant.

    The smallest p-value of n sessions is 2 ** (1 - n), that of the sign-flip test.
    Holm's rule multiplies it by the number of arms compared.
    """
    sessions, world = experiment.sessions, experiment.experiment.world
    if sessions is None or WORLDS[world].computed:
        return
    compared = len(experiment.arms) - 1
    if compared < 1:
        return
    needed = math.floor(math.log2(compared / experiment.analysis.alpha)) + 2
    if sessions.count < needed:
        yield (
            f"{sessions.count} sessions cannot show a significant difference of "
            f"{compared} arms; {needed} can"
        )


def _lasting(found: Sequence[Point], world: World, further: int) -> str:
    """Return the duration of all runs with the world's default executor.

    Each ``further`` point takes at most as long as the longest of those ``found``.
    """
    seconds = []
    if WORLDS[world.name].computed:
        for name in (each for it in found for each in capacity.uncosted(it.experiment)):
            return f"duration unknown, as is the cost of a request of {name!r}"
    for experiment in (capacity.in_rates(point.experiment) for point in found):
        runs = experiment.blocks * len(experiment.all_arms())
        seconds.append(runs * world.estimate_s(experiment))
    per_minute = 60 * (launching.executor_for(world).lanes or 1)
    least = sum(seconds) / per_minute
    most = least + further * max(seconds) / per_minute
    return f"about {_range(f'{least:.1f}', f'{most:.1f}')} minutes"
