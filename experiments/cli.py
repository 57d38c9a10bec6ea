"""The command line: ``doorkeeper``.

Every subcommand imports what it needs when it runs, never before: ``doorkeeper serve``
must answer its first request within a second, and pyspark, pyarrow and matplotlib take
longer than that to import. An operator's fault ends the command with exit status 2 and
one sentence that names the key; any other exception is ours and keeps its traceback.
"""

from __future__ import annotations

from pathlib import Path

import click

_CONFIG_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


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


@main.command()
def schedulers() -> None:
    """List the schedulers, one line each."""
    from experiments.catalogue import scheduler_lines

    for line in scheduler_lines():
        click.echo(line)


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


if __name__ == "__main__":
    main()
