"""``doorkeeper console``: pages that show Kafka clusters."""

from __future__ import annotations

import os
from pathlib import Path

import click

from doorkeeper.shared import CONFIG_FILE, failing, refusing


@click.command()
@click.option(
    "--bootstrap",
    "clusters",
    multiple=True,
    metavar="HOST:PORT",
    default=("127.0.0.1:9092",),
    show_default=True,
    help="Brokers of a cluster, with commas; repeated, one cluster each.",
)
@click.option(
    "--command-config",
    type=CONFIG_FILE,
    help="Kafka's client.properties, for TLS and SASL; of all clusters.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="An IP address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    help="0: any that is free.",
)
@click.option(
    "--password-file",
    type=CONFIG_FILE,
    help="Ask for the password in this file's first line; needed beyond loopback. Or "
    "set DOORKEEPER_CONSOLE_PASSWORD.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Offer changes too; each is confirmed, and logged on standard error.",
)
def console(
    clusters: tuple[str, ...],
    command_config: Path | None,
    host: str,
    port: int,
    password_file: Path | None,
    *,
    allow_changes: bool,
) -> None:
    """Show clusters as web pages, read-only by default, until SIGTERM or Ctrl-C.

    Works with any Kafka cluster. Prints the address when it is ready.
    """
    from broker.config.properties import read_properties
    from broker.protocol.errors import ConfigError
    from doorkeeper.web_console import web_server

    with refusing(ConfigError):
        with failing(OSError, UnicodeError):
            password = web_server.read_password(password_file, os.environ)
        has_login = password is not None
        address = web_server.listening_address(host, has_login=has_login)
        settings = {} if command_config is None else read_properties(command_config)
        with failing(OSError):
            listener = web_server.bound(address, port)
        web_server.run(
            listener,
            clusters,
            settings,
            click.echo,
            allow_changes=allow_changes,
            password=password,
        )
