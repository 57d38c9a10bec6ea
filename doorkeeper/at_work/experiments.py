"""What the subcommands of ``doorkeeper experiment`` do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from experiments.design import config
from experiments.design.config import Experiment
from experiments.design.config_errors import ExperimentError
from experiments.design.points import Point, factors, points
from experiments.design.worlds import WORLDS
from experiments.load.size import refuse_oversize
from experiments.records.environment import memory_bytes
from experiments.running.executor import Executor
from experiments.running.progress import ProgressBar
from experiments.running.runner import plan, run
from experiments.running.stopping import TIME_UP, HalfWidth
from experiments.running.worlds import make_world
from experiments.worlds.episodes import EpisodicWorld
from experiments.worlds.world import Trial, World

# A Spark session that is opened when trials are to run; its type is Spark's own.
Connect = Callable[[], AbstractContextManager[Any]]


def load(path: Path, schedulers: str | None, world: str | None) -> Experiment:
    """Read a config, apply the command line's choices, and check everything in it.

    :raises ExperimentError: naming the first key that is not as expected.
    """
    experiment = config.load(path)
    if schedulers is not None:
        names = [name.strip() for name in schedulers.split(",")]
        experiment = experiment.with_schedulers(names)
    if world is not None:
        experiment = experiment.with_world(world)
    for point in points(experiment):
        _check_broker_keys(point)
        refuse_oversize(point.experiment, memory_bytes())
    return experiment


def run_experiment(
    experiment: Experiment,
    directory: Path,
    console: Console,
    *,
    resume: bool,
    executor: str | None = None,
    workers: int | None = None,
    connect: Connect | None = None,
) -> bool:
    """Run an experiment; say whether every trial has a run that counts.

    ``executor`` is ``sequential``, ``local`` or ``spark``, by default ``local`` where
    the world allows it; ``connect`` is needed for ``spark``.

    :raises ExperimentError: if the world does not allow the executor.
    """
    with ProgressBar(console) as progress:
        world = make_world(experiment.experiment.world, progress.tick)
        chosen = _executor(experiment, executor, world, workers, connect)
        missing = run(
            experiment,
            directory,
            world,
            chosen,
            progress,
            resume=resume,
            half_width=_half_width(experiment),
        )
    for trial in missing:
        where = f"{trial.point}, block {trial.block}".removeprefix(", ")
        reason = f"{where}, {trial.arm}: no run counts ({trial.reason})"
        console.print(reason, markup=False)
    console.print(f"recorded in {directory}", markup=False)
    if missing:
        console.print("--resume repeats the runs that do not count, and no others")
    if _time_was_up(directory):
        console.print("time was up; --resume adds rounds to these, for as long again")
    return not missing


def _time_was_up(directory: Path) -> bool:
    """Whether rounds ended before their intervals were as narrow as asked."""
    content = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    looks = content["looks"]
    return bool(looks) and looks[-1]["decision"] == TIME_UP


def _half_width(experiment: Experiment) -> HalfWidth | None:
    """Return what measures intervals, where an experiment ends by their width."""
    if experiment.episodes is None:
        return None
    from spark_analysis.statistics.rounds import half_width

    return half_width


def _executor(
    experiment: Experiment,
    name: str | None,
    world: World,
    workers: int | None,
    connect: Connect | None,
) -> Executor:
    """Make the executor; it imports what it needs, and no other does."""
    independent = WORLDS[world.name].computed
    name = name or ("local" if independent else "sequential")
    if experiment.episodes is not None and not independent:
        return _in_episodes(name, world)
    if name == "sequential":
        from experiments.running.executors.sequential import Sequential

        return Sequential(world)
    if not independent:
        computed = [it for it, entry in WORLDS.items() if entry.computed]
        raise ExperimentError(
            f"--executor {name}",
            f"runs of the {world.name} world measure the machine, so they cannot share "
            "it; this is for --world " + " and ".join(computed),
        )
    if name == "spark":
        from experiments.running.executors.spark import Spark

        assert connect is not None
        return Spark(world.name, connect)
    from experiments.running.executors.local import Local

    return Local(world.name, workers)


def _in_episodes(name: str, world: World) -> Executor:
    """Make the executor of episodes on the clock, for which all arms are alive."""
    from experiments.running.executors.episodes import InEpisodes

    if name != "sequential":
        raise ExperimentError(
            f"--executor {name}",
            f"episodes of the {world.name} world are played one after the other, for "
            "they measure the machine",
        )
    return InEpisodes(cast(EpisodicWorld, world))


def _check_broker_keys(point: Point) -> None:
    try:
        config.check_broker_keys(point.experiment)
    except ExperimentError as error:
        if point.number is None:
            raise
        raise ExperimentError(f"sweep, point {point.name!r}", str(error)) from error


def describe(experiment: Experiment, console: Console) -> None:
    """Print the trials of an experiment, and how long they will take."""
    header = experiment.experiment
    world = make_world(header.world, lambda: None)
    arms, found = experiment.all_arms(), points(experiment)
    trials = list(plan(found))
    console.print(f"{header.name}: {header.title}", highlight=False)
    table = Table()
    for column in ("arm", "scheduler", "broker keys", "runs"):
        table.add_column(column)
    runs = Counter(trial.arm.name for trial in trials)
    for arm in arms:
        keys = ", ".join(f"{key}={value}" for key, value in arm.set.items())
        table.add_row(arm.name, arm.scheduler, keys, str(runs[arm.name]))
    console.print(table)
    for factor, levels in factors(found).items():
        console.print(f"{factor}: {', '.join(levels)}", highlight=False)
    if experiment.sweep is None and experiment.episodes is None:
        for block in range(header.blocks):
            order = [trial.arm.name for trial in trials if trial.block == block]
            console.print(f"block {block}: {', '.join(order)}", highlight=False)
    if experiment.episodes is not None:
        console.print(_ending(experiment), highlight=False)
    console.print(f"{size(experiment)}, {_lasting(trials, world)}", highlight=False)


def _ending(experiment: Experiment) -> str:
    """Say when the rounds of an experiment end."""
    episodes = experiment.episodes
    assert episodes is not None
    clock = (
        ""
        if WORLDS[experiment.experiment.world].computed
        else (f", after {episodes.minutes:g} minutes at the latest")
    )
    return (
        f"rounds end when the p{episodes.quantile * 100:g} ratio of "
        f"{experiment.primary_class} is known to a factor {1 + episodes.precision:g} "
        f"under every arm{clock}; {episodes.rounds_min} rounds at least, in sessions "
        f"of {episodes.session_rounds}"
    )


def size(experiment: Experiment) -> str:
    """Return how many runs an experiment has, and why."""
    found = points(experiment)
    header, arms = experiment.experiment, experiment.all_arms()
    blocks_and_arms = f"{header.blocks} blocks x {len(arms)} arms"
    if experiment.episodes is not None:
        blocks_and_arms = f"at most {header.blocks} rounds x {len(arms)} arms"
    in_all = len(found) * header.blocks * len(arms)
    if experiment.sweep is None:
        return f"{blocks_and_arms} = {in_all} runs in the {header.world} world"
    return (
        f"{len(found)} points x {blocks_and_arms} = {in_all} runs "
        f"in the {header.world} world"
    )


def _lasting(trials: Sequence[Trial], world: World) -> str:
    """Return how long trials take by the executor that the world has by default."""
    seconds = sum(world.estimate_s(trial.experiment) for trial in trials)
    experiment = trials[0].experiment
    lanes = _executor(experiment, None, world, None, None).lanes or 1
    minutes = seconds / lanes / 60
    if experiment.episodes is None:
        return f"about {minutes:.1f} minutes"
    if not WORLDS[world.name].computed:
        minutes = min(minutes, experiment.episodes.minutes)
    return f"about {minutes:.1f} minutes at most"
