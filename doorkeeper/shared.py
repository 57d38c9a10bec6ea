"""What several commands share: their arguments, how a fault ends them, the console."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

DIRECTORY = click.Path(path_type=Path)
RUN_DIR = click.Path(exists=True, file_okay=False, path_type=Path)
CONFIG_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
CONFIG = click.argument("config", type=CONFIG_FILE)
# Of a broker, or of all brokers of a cluster.
SCHEDULER = click.option(
    "--scheduler", metavar="NAME", help="A preset or module:factory."
)
SETTINGS = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE")
_PIPED_WIDTH = 120


def overrides(settings: tuple[str, ...], scheduler: str | None) -> dict[str, str]:
    """Split ``key=value`` settings; the last one of a key counts."""
    found: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(
                f"{setting!r} is not KEY=VALUE", param_hint="--set"
            )
        found[key.strip()] = value.strip()
    if scheduler is not None:
        found["doorkeeper.scheduler"] = scheduler
    return found


@contextlib.contextmanager
def refusing(*faults: type[Exception]) -> Iterator[None]:
    """End the command with status 2 and the words of an operator's fault.

    Any other exception is ours and keeps its traceback.
    """
    try:
        yield
    except faults as error:
        raise click.UsageError(str(error)) from error


@contextlib.contextmanager
def failing(*faults: type[Exception]) -> Iterator[None]:
    """End the command with status 1 and the words of what went wrong around it."""
    try:
        yield
    except faults as error:
        raise click.ClickException(str(error)) from error


def console() -> Console:
    """Return what tables are printed to; in a pipe or a file they are wide."""
    from rich.console import Console

    found = Console()
    if found.is_terminal:
        return found
    return Console(width=max(found.width, _PIPED_WIDTH))
