"""From a config file to a finished experiment: checks, calibration, executor, run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.design import calibration, config, config_file
from experiments.design.calibration import Calibration
from experiments.design.config import Experiment
from experiments.design.config_errors import ExperimentError
from experiments.design.points import Point, points
from experiments.design.sweep import Bisection
from experiments.design.trace_windows import check_windows
from experiments.design.world_config import WORLDS
from experiments.load.size import refuse_oversize
from experiments.records.environment import code, environment, memory_bytes, now
from experiments.running.bisection import continued, refined
from experiments.running.calibrate import SESSIONS, calibrate
from experiments.running.executor import Executor
from experiments.running.progress import ProgressBar, Watcher
from experiments.running.runner import refuse_taken, run
from experiments.running.units import Missing
from experiments.running.world_registry import make_world
from experiments.worlds.world import World

CALIBRATION: Final = "calibration.json"
# Opens the Spark session that runs trials; its type is Spark's own.
Connect = Callable[[], AbstractContextManager[Any]]


def load(
    path: Path,
    schedulers: str | None = None,
    world: str | None = None,
    *,
    seed: int | None = None,
    sessions: int | None = None,
) -> Experiment:
    """Read a config, apply the command line's options, and check the result.

    :raises ExperimentError: naming the first invalid key.
    """
    experiment = config_file.load(path)
    if schedulers is not None:
        names = [name.strip() for name in schedulers.split(",")]
        experiment = experiment.with_schedulers(names)
    if world is not None:
        experiment = experiment.with_world(world)
    experiment = experiment.with_traces(seed, sessions)
    for point in points(experiment):
        _check_broker_keys(point)
        refuse_oversize(point.experiment, memory_bytes())
        with _naming(point):
            check_windows(point.experiment)
    return experiment


def for_machine(
    experiment: Experiment,
    directory: Path,
    given: Path | None,
    console: Console,
    *,
    resume: bool,
) -> Experiment:
    """Return the experiment with the costs of the machine that will run it.

    These are the costs of the file ``given``, or else those in ``directory`` from an
    earlier run. Otherwise they are measured, if the world measures the machine and
    loads are shares of it. In other worlds requests have their nominal costs.

    :raises ExperimentError: if the file is no calibration of this traffic, or the
        directory holds an experiment.
    """
    if given is not None:
        return experiment.with_machine(calibration.read(given))
    world = experiment.experiment.world
    if WORLDS[world].computed or not experiment.workload.in_shares:
        return experiment
    refuse_taken(directory, experiment, resume=resume)
    known = directory / CALIBRATION
    if not known.exists():
        console.print("calibrating: CPU time per request on this machine")
        found = measure(experiment, world, "experiment run", console)
        calibration.write(found, known)
    return experiment.with_machine(calibration.read(known))


def measure(
    experiment: Experiment,
    world: str,
    command: str,
    console: Console,
    sessions: int = SESSIONS,
) -> Calibration:
    """Calibrate an experiment on this machine, with a progress bar.

    :raises experiments.worlds.world.WorldError: if nothing could be measured.
    """
    machine, sources = environment(), code()
    source = (
        f"{command} --world {world}, {now()[:10]}, {machine['cpu_model']}, "
        f"Python {machine['python']}, commit {str(sources['commit'])[:10]}"
    )
    with ProgressBar(console) as progress:
        there = make_world(world, progress.tick)
        return calibrate(experiment, there, progress, source, sessions)


def run_experiment(
    experiment: Experiment,
    directory: Path,
    watcher: Watcher,
    *,
    resume: bool,
    executor: str | None = None,
    workers: int | None = None,
    connect: Connect | None = None,
) -> list[Missing]:
    """Run an experiment; return the trials without a valid run.

    A bisection of the load continues until no arm needs a further level.

    ``executor`` is ``sequential``, ``local`` or ``spark``, by default ``local`` if the
    world allows it; ``connect`` is required for ``spark``.

    :raises ExperimentError: if the world does not allow the executor.
    """
    world = make_world(experiment.experiment.world, watcher.tick)
    chosen = executor_for(world, executor, workers, connect)
    sweep = experiment.sweep
    if not isinstance(sweep, Bisection):
        return run(experiment, directory, world, chosen, watcher, resume=resume)
    if resume:
        experiment = continued(experiment, directory)
    missing = run(experiment, directory, world, chosen, watcher, resume=resume)
    while (finer := refined(experiment, directory, sweep)) != experiment:
        experiment = finer
        missing = run(experiment, directory, world, chosen, watcher, resume=True)
    return missing


def executor_for(
    world: World,
    name: str | None = None,
    workers: int | None = None,
    connect: Connect | None = None,
) -> Executor:
    """Create the executor, and import no other.

    :raises ExperimentError: if the world does not allow it.
    """
    computed = WORLDS[world.name].computed
    name = name or ("local" if computed else "sequential")
    if name == "sequential":
        from experiments.running.executors.sequential import Sequential

        return Sequential(world)
    if not computed:
        allowed = [it for it, entry in WORLDS.items() if entry.computed]
        raise ExperimentError(
            f"--executor {name}",
            f"runs of the {world.name} world measure the machine, so they cannot share "
            "it; this is for --world " + " and ".join(allowed),
        )
    if name == "spark":
        from experiments.running.executors.spark import Spark

        assert connect is not None
        return Spark(world.name, connect)
    from experiments.running.executors.local import Local

    return Local(world.name, workers)


def _check_broker_keys(point: Point) -> None:
    with _naming(point):
        config.check_broker_keys(point.experiment)


@contextmanager
def _naming(point: Point) -> Iterator[None]:
    """Add the point of a sweep to errors about it."""
    try:
        yield
    except ExperimentError as error:
        if point.number is None:
            raise
        raise ExperimentError(f"sweep, point {point.name!r}", str(error)) from error
