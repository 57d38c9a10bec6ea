"""``doorkeeper calibrate``: what each traffic entry's requests cost on this machine."""

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
    "--rounds",
    type=click.IntRange(min=2),
    help="How many rounds to measure, for more than usual: a nominal machine.",
)
@click.option(
    "--out",
    type=FILE,
    help="Where to write it, for --calibration FILE of an experiment's run.",
)
def calibrate(config: Path, world: str, rounds: int | None, out: Path | None) -> None:
    """Measure what requests of a config cost its baseline arm: a minute or so."""
    from doorkeeper.at_work import calibration as at_work
    from experiments.design.config_errors import ExperimentError
    from experiments.worlds.world import WorldError

    with refusing(ExperimentError), failing(WorldError):
        at_work.run(config, world, rounds, out, console())
