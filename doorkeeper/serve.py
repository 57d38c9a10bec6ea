"""``doorkeeper serve``: a broker from the command line."""

from __future__ import annotations

from pathlib import Path

import click

from doorkeeper.shared import CONFIG_FILE, refusing


@click.command()
@click.option("--config", type=CONFIG_FILE, help="Kafka's server.properties.")
@click.option("--scheduler", metavar="NAME", help="A preset or module:factory.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE")
def serve(
    config: Path | None, scheduler: str | None, settings: tuple[str, ...]
) -> None:
    """Run a broker until SIGTERM; print one line per listener when it is ready."""
    from doorkeeper import broker

    overrides = _overrides(settings)
    if scheduler is not None:
        overrides["doorkeeper.scheduler"] = scheduler
    with refusing(broker.ConfigError):
        broker.serve(broker.BrokerConfig.load(config, overrides))


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
