"""``doorkeeper experiment``: run a config, check it, or print its plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import click

from doorkeeper.shared import CONFIG, CONFIG_FILE, DIRECTORY, console, failing, refusing

_SCHEDULERS = click.option(
    "--schedulers", metavar="A,B", help="Only these arms, or schedulers as new arms."
)
_WORLD = click.option(
    "--world", metavar="NAME", help="live, model or another; default the file's."
)
_SESSIONS = click.option(
    "--sessions", type=click.IntRange(min=1), help="Another number of sessions."
)


@click.group()
def experiment() -> None:
    """Replay the same requests to every arm, and record each of them."""


@experiment.command()
@CONFIG
@click.option(
    "--out", type=DIRECTORY, help="Directory of the recording; default runs/NAME."
)
@_SCHEDULERS
@_WORLD
@click.option(
    "--calibration",
    type=CONFIG_FILE,
    metavar="FILE",
    help="Calibration file of this machine; default: measured, where loads are shares.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="Other traces than the file's."
)
@_SESSIONS
@click.option("--resume", is_flag=True, help="Go on; repeat no trial that is done.")
@click.option(
    "--executor",
    type=click.Choice(["sequential", "local", "spark"]),
    help="Execution of trials: one by one, in processes, or on a cluster; default "
    "local for the model and virtual worlds, sequential for the live one.",
)
@click.option("--master", metavar="URL", help="The cluster of --executor spark.")
@click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Processes.")
def run(
    config: Path,
    out: Path | None,
    schedulers: str | None,
    world: str | None,
    calibration: Path | None,
    seed: int | None,
    sessions: int | None,
    resume: bool,
    executor: str | None,
    master: str | None,
    workers: int | None,
) -> None:
    """Run an experiment; exit status 1 if a trial has no run that counts."""
    from experiments.design.config_errors import ExperimentError
    from experiments.running import experiment_command, launching
    from experiments.running.trials import TrialFailed
    from experiments.worlds.world import WorldError

    if (master is not None) != (executor == "spark"):
        raise click.UsageError("--executor spark and --master URL belong together")
    if workers is not None and executor == "spark":
        raise click.UsageError(
            "--workers is for --executor local; a cluster has its own"
        )
    with refusing(ExperimentError), failing(TrialFailed, WorldError):
        chosen = launching.load(config, schedulers, world, seed=seed, sessions=sessions)
        directory, screen = out or Path("runs") / chosen.name, console()
        complete = experiment_command.run_experiment(
            chosen,
            directory,
            screen,
            calibration=calibration,
            resume=resume,
            executor=executor,
            workers=workers,
            connect=None if master is None else _cluster(master),
        )
    if not complete:
        raise SystemExit(1)


@experiment.command()
@CONFIG
def validate(config: Path) -> None:
    """Check a config, its broker keys included."""
    from experiments.design.config_errors import ExperimentError
    from experiments.running import experiment_command, launching

    with refusing(ExperimentError):
        chosen = launching.load(config)
    click.echo(
        f"{config}: {chosen.name} is well formed: {experiment_command.size(chosen)}"
    )


@experiment.command()
@CONFIG
@_SCHEDULERS
@_WORLD
@_SESSIONS
@click.option(
    "--pilot",
    type=DIRECTORY,
    metavar="RUN_DIR",
    help="A pilot recording that determines the number of sessions.",
)
@click.option(
    "--precision",
    metavar="10%",
    default="10%",
    show_default=True,
    help="The wanted half-width of the ratio of the configured metric.",
)
def plan(
    config: Path,
    schedulers: str | None,
    world: str | None,
    sessions: int | None,
    pilot: Path | None,
    precision: str,
) -> None:
    """Print the trials, the runs and the minutes; with a pilot, the sessions."""
    from experiments.design.config_errors import ExperimentError
    from experiments.running import experiment_command, launching

    with refusing(ExperimentError):
        chosen = launching.load(config, schedulers, world, sessions=sessions)
        if pilot is not None:
            experiment_command.advise(chosen, pilot, _share(precision), console())
            return
    experiment_command.describe(chosen, console())


def _share(text: str) -> float:
    """Return the number that a percentage means.

    :raises click.BadParameter: unless it is above 0.
    """
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 10:
        words = f"found {text!r}, expected a percentage such as 10%"
        raise click.BadParameter(words, param_hint="--precision")
    return share


def _cluster(master: str) -> Callable[[], AbstractContextManager[Any]]:
    """Return a factory of Spark sessions whose workers have the code of trials."""
    from experiments.records.environment import CODE_PACKAGES
    from spark_analysis.recordings.spark_session import spark_session

    here = Path(__file__).parent.parent
    packages = [here / package for package in CODE_PACKAGES]
    return partial(spark_session, master, packages)
