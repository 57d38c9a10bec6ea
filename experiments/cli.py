"""The command line: ``doorkeeper``.

Every subcommand imports what it needs when it runs, never before: ``doorkeeper serve``
must answer its first request within a second, and pyspark, pyarrow and matplotlib take
longer than that to import. An operator's fault ends the command with exit status 2 and
one sentence that names the key; any other exception is ours and keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

_CONFIG_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_RUN_DIR = click.Path(exists=True, file_okay=False, path_type=Path)
_DIRECTORY = click.Path(path_type=Path)
_PIPED_WIDTH = 120


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="doorkeeper")
def main() -> None:
    """Run a Kafka broker with pluggable request scheduling, and experiments on it."""


@main.command()
@click.option("--config", type=_CONFIG_FILE, help="Kafka's server.properties.")
@click.option("--scheduler", metavar="NAME", help="A preset or module:factory.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE")
def serve(
    config: Path | None, scheduler: str | None, settings: tuple[str, ...]
) -> None:
    """Run a broker until SIGTERM; print one line per listener when it is ready."""
    from broker import server
    from broker.config import BrokerConfig
    from broker.errors import ConfigError

    overrides = _overrides(settings)
    if scheduler is not None:
        overrides["doorkeeper.scheduler"] = scheduler
    try:
        server.main(BrokerConfig.load(config, overrides))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


@main.group(invoke_without_command=True)
@click.pass_context
def schedulers(context: click.Context) -> None:
    """List the schedulers, one line each."""
    if context.invoked_subcommand is not None:
        return
    from experiments.catalogue import scheduler_lines

    for line in scheduler_lines():
        click.echo(line)


@schedulers.command()
@click.argument("name")
def check(name: str) -> None:
    """Put a policy (a name, or module:factory) to the laws that all must keep."""
    from schedulers import UnknownScheduler, find
    from schedulers.conformance import check as violations_of

    # A researcher's own module lies where they work, not among the installed ones.
    sys.path.insert(0, "")
    try:
        violations = violations_of(find(name))
    except UnknownScheduler as error:
        raise click.UsageError(str(error)) from error
    for violation in violations:
        click.echo(str(violation))
    if violations:
        raise SystemExit(1)
    click.echo(f"{name} keeps the laws")


@main.group()
def experiment() -> None:
    """Replay the same requests to every arm, and record each of them."""


_CONFIG = click.argument("config", type=_CONFIG_FILE)
_SCHEDULERS = click.option(
    "--schedulers", metavar="A,B", help="Only these arms, or schedulers as new arms."
)
_WORLD = click.option("--world", type=click.Choice(["live", "virtual", "model"]))


@experiment.command()
@_CONFIG
@click.option("--out", type=_DIRECTORY, help="Where to record; default runs/NAME.")
@_SCHEDULERS
@_WORLD
@click.option("--resume", is_flag=True, help="Go on; repeat no cell that is done.")
@click.option(
    "--executor",
    type=click.Choice(["sequential", "local", "spark"]),
    help="How cells run: one by one, in processes, or on a cluster; default local "
    "for the model and virtual worlds, sequential for the live one.",
)
@click.option("--master", metavar="URL", help="The cluster of --executor spark.")
@click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Processes.")
def run(
    config: Path,
    out: Path | None,
    schedulers: str | None,
    world: str | None,
    resume: bool,
    executor: str | None,
    master: str | None,
    workers: int | None,
) -> None:
    """Run an experiment; exit status 1 if a cell has no run that counts."""
    from experiments import commands
    from experiments.cells import CellFailed
    from experiments.config_errors import ExperimentError
    from experiments.worlds.world import WorldError

    if (master is not None) != (executor == "spark"):
        raise click.UsageError("--executor spark and --master URL belong together")
    if workers is not None and executor == "spark":
        raise click.UsageError(
            "--workers is for --executor local; a cluster has its own"
        )
    try:
        chosen = commands.load(config, schedulers, world)
        directory = out or Path("runs") / chosen.name
        complete = commands.run_experiment(
            chosen,
            directory,
            _console(),
            resume=resume,
            executor=executor,
            workers=workers,
            connect=None if master is None else _cluster(master),
        )
    except ExperimentError as error:
        raise click.UsageError(str(error)) from error
    except (CellFailed, WorldError) as error:
        raise click.ClickException(str(error)) from error
    if not complete:
        raise SystemExit(1)


@experiment.command()
@_CONFIG
def validate(config: Path) -> None:
    """Check a config, its broker keys included."""
    from experiments import commands
    from experiments.config_errors import ExperimentError

    try:
        chosen = commands.load(config, None, None)
    except ExperimentError as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"{config}: {chosen.name} is well formed: {commands.size(chosen)}")


@experiment.command()
@_CONFIG
@_SCHEDULERS
@_WORLD
def plan(config: Path, schedulers: str | None, world: str | None) -> None:
    """Print the cells, the runs and the minutes of an experiment."""
    from experiments import commands
    from experiments.config_errors import ExperimentError

    try:
        chosen = commands.load(config, schedulers, world)
    except ExperimentError as error:
        raise click.UsageError(str(error)) from error
    commands.describe(chosen, _console())


@main.command()
@_CONFIG
@click.argument("run_dirs", type=_RUN_DIR, nargs=-1)
@click.option(
    "--world", "worlds", type=click.Choice(["virtual", "model"]), multiple=True
)
@click.option("--tolerance", default=0.01, show_default=True, help="Relative.")
def theory(
    config: Path, run_dirs: tuple[Path, ...], worlds: tuple[str, ...], tolerance: float
) -> None:
    """Print what closed forms say of each arm beside what was measured.

    Runs the experiment in the model world (and the virtual one where it is quick), or
    reads recordings of it. Exit status 1 if a prediction is contradicted.
    """
    from experiments import commands
    from experiments.config_errors import ExperimentError
    from experiments.theory import command

    try:
        chosen = commands.load(config, None, None)
        agrees = command.run(chosen, run_dirs, worlds, tolerance, _console())
    except ExperimentError as error:
        raise click.UsageError(str(error)) from error
    if not agrees:
        raise SystemExit(1)


@main.command()
@click.argument("run_dir", type=_RUN_DIR)
@click.option("--out", type=_DIRECTORY, help="Default RUN_DIR/report.")
@click.option("--master", metavar="URL", help="A Spark cluster; default local.")
def analyze(run_dir: Path, out: Path | None, master: str | None) -> None:
    """Compare the arms of a recorded experiment: tables, figures, verdicts."""
    from spark_analysis import analyze as analysis
    from spark_analysis.contract import RecordingError

    try:
        analysis.analyze(run_dir, out, master)
    except RecordingError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("run_dir", type=_RUN_DIR)
@click.option("--out", type=_DIRECTORY, default=Path("paper.pdf"), show_default=True)
def paper(run_dir: Path, out: Path) -> None:
    """Typeset the paper with the numbers of a recorded experiment."""
    from spark_analysis import paper as typesetting
    from spark_analysis.contract import RecordingError

    try:
        typesetting.build(run_dir, out)
    except RecordingError as error:
        raise click.ClickException(str(error)) from error


def _cluster(master: str) -> Callable[[], AbstractContextManager[Any]]:
    """Return what opens a Spark session whose workers have the code of cells."""
    from experiments.environment import CODE_PACKAGES
    from spark_analysis.session import spark_session

    here = Path(__file__).parent.parent
    packages = [here / package for package in CODE_PACKAGES]
    return partial(spark_session, master, packages)


def _overrides(settings: tuple[str, ...]) -> dict[str, str]:
    """Split ``key=value`` settings; the last one of a key counts."""
    overrides: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(
                f"{setting!r} is not KEY=VALUE", param_hint="--set"
            )
        overrides[key.strip()] = value.strip()
    return overrides


def _console() -> Console:
    """Return what tables are printed to; in a pipe or a file they are wide."""
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        return console
    return Console(width=max(console.width, _PIPED_WIDTH))


if __name__ == "__main__":
    main()
