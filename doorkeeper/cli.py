"""The command line ``doorkeeper``, composed of one file per group of commands.

Those files import click only. A command imports its packages when it runs: a broker
must answer its first request within a second, and pyspark, pyarrow and matplotlib take
longer than that to import.
"""

import click

from doorkeeper.analysis import analyze, paper
from doorkeeper.calibrate import calibrate
from doorkeeper.cluster import cluster
from doorkeeper.console import console
from doorkeeper.experiment import experiment
from doorkeeper.results import results
from doorkeeper.schedulers import schedulers
from doorkeeper.serve import serve
from doorkeeper.shared import Commands
from doorkeeper.simulate import simulate
from doorkeeper.theory import theory


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="doorkeeper")
def main() -> None:
    """Run a Kafka broker with pluggable request scheduling, and experiments on it."""


COMMANDS = (
    *(serve, cluster, console, schedulers, experiment, calibrate),
    *(theory, simulate, analyze, results, paper),
)
for command in COMMANDS:
    main.add_command(command)
