"""``doorkeeper calibrate``: cost of each traffic entry's requests on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from doorkeeper.shared import CONFIG, FILE, console, failing, refusing


@click.command()
@CONFIG
@click.option(
    "--world",
    type=click.Choice(["live", "virtual", "kafka", "kraft"]),
    default="live",
)
@click.option(
    "--sessions",
    type=click.IntRange(min=2),
    default=4,
    show_default=True,
    help="Sessions of fresh processes to measure; intervals are over sessions.",
)
@click.option(
    "--out",
    type=FILE,
    help="File of the result, for --calibration FILE of an experiment's run.",
)
def calibrate(config: Path, world: str, sessions: int, out: Path | None) -> None:
    """Measure the CPU time of a config's requests under its baseline arm."""
    from experiments.design.config_errors import ExperimentError
    from experiments.running import experiment_command
    from experiments.worlds.world import WorldError

    with refusing(ExperimentError), failing(WorldError):
        experiment_command.calibrate(config, world, sessions, out, console())
