"""Parts of several commands: arguments, error reports, the console."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from doorkeeper.extras import missing_extra, missing_module

if TYPE_CHECKING:
    from rich.console import Console

# Faults that a user can correct: a full disk, a file in the way, an overlong name.
_OF_FILES: Final = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOENT),
        *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
        *(errno.EMFILE, errno.ENFILE),
    }
)


class _Output(click.Path):
    """A path for output; refused before any work if it cannot be written."""

    def __init__(self, *, directory: bool) -> None:
        super().__init__(dir_okay=directory, file_okay=not directory, path_type=Path)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return the path if it is free or of the right kind, and its folder exists."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            there = next(each for each in (path, *path.parents) if each.exists())
        except OSError as error:
            self.fail(f"{path}: {error.strerror}", param, ctx)
        if there != path and not there.is_dir():
            self.fail(f"{path} lies below {there}, which is a file", param, ctx)
        return path


DIRECTORY = _Output(directory=True)
FILE = _Output(directory=False)
RUN_DIR = click.Path(exists=True, file_okay=False, path_type=Path)
CONFIG_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
CONFIG = click.argument("config", type=CONFIG_FILE)
# The scheduler of a broker, or of all brokers of a cluster.
SCHEDULER = click.option(
    "--scheduler", metavar="NAME", help="A preset or module:factory."
)
SETTINGS = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE")
_PIPED_WIDTH = 120


def overrides(settings: tuple[str, ...], scheduler: str | None) -> dict[str, str]:
    """Split ``key=value`` settings; the last value of a key is used."""
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


class Commands(click.Group):
    """The whole command line. Every user's fault ends in one sentence.

    Commands list their own faults with `refusing` and `failing`. This class handles
    faults that can occur in any command: of the file system, of a user's policy, of an
    extra that is not installed, and of a terminal that cannot print a character.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; any other exception is a fault of this package."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, SystemExit):
            raise
        except ModuleNotFoundError as error:
            extra = missing_extra(ctx.invoked_subcommand, error.name)
            if extra is None:
                raise
            message = f"`doorkeeper {ctx.invoked_subcommand}` needs {error.name}"
            raise click.ClickException(
                f"{message}: pip install 'doorkeeper[{extra}]'"
            ) from error
        except OSError as error:
            if error.errno not in _OF_FILES:
                raise
            raise click.ClickException(describe_os_error(error)) from error
        except BaseException as error:
            from schedulers import policy_fault

            fault = policy_fault(error)
            if fault is None:
                raise
            raise click.ClickException(str(fault)) from error


def expect_extra(extra: str, user: str) -> None:
    """End the command with a message if an extra that ``user`` needs is missing."""
    missing = missing_module(extra)
    if missing is not None:
        message = f"{user} needs {missing}: pip install 'doorkeeper[{extra}]'"
        raise click.ClickException(message)


def describe_os_error(error: OSError) -> str:
    """Return a message for a fault of the file system, with the file if known."""
    message = error if error.filename is None else f"{error.filename}: {error.strerror}"
    return f"{message}{_limit_on_files(error)}"


def _limit_on_files(error: Exception) -> str:
    """Return the exceeded limit on open files that an error names; empty if none."""
    message = str(error)
    if os.strerror(errno.EMFILE) in message:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"; this process may open {most} files and sockets (ulimit -n)"
    if os.strerror(errno.ENFILE) in message:
        return "; all processes together have opened fs.file-max files (sysctl)"
    return ""


@contextlib.contextmanager
def refusing(*faults: type[Exception]) -> Iterator[None]:
    """End the command with status 2 and the message of an operator's fault.

    Any other exception is a fault of this package and keeps its traceback.
    """
    try:
        yield
    except faults as error:
        raise click.UsageError(f"{error}{_limit_on_files(error)}") from error


@contextlib.contextmanager
def failing(*faults: type[Exception]) -> Iterator[None]:
    """End the command with status 1 and the message of a fault in its environment."""
    try:
        yield
    except faults as error:
        raise click.ClickException(str(error)) from error


def console() -> Console:
    """Return the console for tables; wide if output goes to a pipe or a file."""
    from rich.console import Console

    found = Console()
    if found.is_terminal:
        return found
    return Console(width=max(found.width, _PIPED_WIDTH))
