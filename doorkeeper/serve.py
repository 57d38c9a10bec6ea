"""``doorkeeper serve``: a broker from the command line."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from doorkeeper.shared import (
    CONFIG_FILE,
    SCHEDULER,
    SETTINGS,
    expect_extra,
    overrides,
    refusing,
)


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
    # Imports leave hardly any garbage, and collecting it takes a fifth of their time.
    gc.disable()
    from broker.config import DOORKEEPER_CONSOLE_PORT
    from doorkeeper import broker

    gc.enable()
    with refusing(broker.ConfigError):
        loaded = broker.BrokerConfig.load(config, overrides(settings, scheduler))
        port = loaded[DOORKEEPER_CONSOLE_PORT]
        if port is None:
            broker.serve(loaded)
            return
        expect_extra("console", DOORKEEPER_CONSOLE_PORT.name)
        from doorkeeper.local_cluster.console_child import serve_with_console

        serve_with_console(loaded, port)
