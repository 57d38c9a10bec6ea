"""What the subcommands of ``doorkeeper experiment`` do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments import config
from experiments.config import Experiment
from experiments.points import points
from experiments.progress import ProgressBar
from experiments.runner import plan, run
from experiments.worlds.registry import make_world


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
    config.check_broker_keys(experiment)
    return experiment


def run_experiment(
    experiment: Experiment, directory: Path, console: Console, *, resume: bool
) -> bool:
    """Run an experiment; say whether every cell has a run that counts."""
    with ProgressBar(console) as progress:
        world = make_world(experiment.experiment.world, progress.tick)
        missing = run(experiment, directory, world, progress, resume=resume)
    for cell in missing:
        console.print(f"block {cell.block}, {cell.arm}: no run counts ({cell.reason})")
    console.print(f"recorded in {directory}")
    return not missing


def describe(experiment: Experiment, console: Console) -> None:
    """Print the cells of an experiment, and how long they will take."""
    header = experiment.experiment
    world = make_world(header.world, lambda: None)
    arms = experiment.all_arms()
    cells = list(plan(points(experiment)))
    console.print(f"{header.name}: {header.title}", highlight=False)
    table = Table()
    for column in ("arm", "scheduler", "broker keys", "runs"):
        table.add_column(column)
    runs = Counter(cell.arm.name for cell in cells)
    for arm in arms:
        keys = ", ".join(f"{key}={value}" for key, value in arm.set.items())
        table.add_row(arm.name, arm.scheduler, keys, str(runs[arm.name]))
    console.print(table)
    for block in range(header.blocks):
        order = [cell.arm.name for cell in cells if cell.block == block]
        console.print(f"block {block}: {', '.join(order)}", highlight=False)
    minutes = len(cells) * world.estimate_s(experiment) / 60
    console.print(
        f"{header.blocks} blocks x {len(arms)} arms = {len(cells)} runs "
        f"in the {header.world} world, about {minutes:.1f} minutes",
        highlight=False,
    )
