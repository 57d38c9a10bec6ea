"""``doorkeeper serve``: a broker from the command line."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from doorkeeper.shared import CONFIG_FILE, SCHEDULER, SETTINGS, overrides, refusing


@click.command()
@click.option("--config", type=CONFIG_FILE, help="Kafka's server.properties.")
@SCHEDULER
@SETTINGS
def serve(
    config: Path | None, scheduler: str | None, settings: tuple[str, ...]
) -> None:
    """Run a broker until SIGTERM, Ctrl-C or SIGHUP.

    Prints one line per listener when it is ready. A second signal ends it at once, with
    status 1: the next start then recovers the logs.
    """
    # Imports leave hardly any garbage; looking for it takes a fifth of their time.
    gc.disable()
    from doorkeeper import broker

    gc.enable()
    with refusing(broker.ConfigError):
        keys = overrides(settings, scheduler)
        broker.serve(broker.BrokerConfig.load(config, keys))
