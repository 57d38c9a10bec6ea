"""``doorkeeper theory``: closed forms compared with measurements of an experiment."""

from __future__ import annotations

import math
from pathlib import Path

import click

from doorkeeper.shared import CONFIG, FILE, RUN_DIR, console, refusing


@click.command()
@CONFIG
@click.argument("run_dirs", type=RUN_DIR, nargs=-1)
@click.option(
    "--world", "worlds", type=click.Choice(["virtual", "model"]), multiple=True
)
@click.option(
    "--margin",
    default=0.05,
    show_default=True,
    help="Relative margin within which a prediction is met.",
)
@click.option(
    "--out",
    type=FILE,
    help="File of the ratios to the baseline, for a report on the same worlds.",
)
def theory(
    config: Path,
    run_dirs: tuple[Path, ...],
    worlds: tuple[str, ...],
    margin: float,
    out: Path | None,
) -> None:
    """Print the closed-form prediction of each arm next to its measurement.

    Runs the experiment in the model world (and the virtual one where it is quick), or
    reads recordings of it. Exit status 1 if a prediction is contradicted.
    """
    from experiments.design.config_errors import ExperimentError
    from experiments.running import launching
    from experiments.theory import theory_command

    if not 0 < margin < math.inf:
        words = f"found {margin}, expected a share above 0, such as 0.05"
        raise click.BadParameter(words, param_hint="--margin")
    with refusing(ExperimentError):
        chosen = launching.load(config)
        sound = theory_command.run(chosen, run_dirs, worlds, margin, console(), out)
    if not sound:
        raise SystemExit(1)
