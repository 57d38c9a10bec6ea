"""``doorkeeper cluster``: several brokers and their ZooKeeper, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from doorkeeper.shared import (
    DIRECTORY,
    SCHEDULER,
    SETTINGS,
    expect_extra,
    failing,
    overrides,
    refusing,
)


@click.group()
def cluster() -> None:
    """Several brokers with replicas, on this machine."""


@cluster.command()
@click.option("--brokers", type=click.IntRange(1, 99), default=3, show_default=True)
@SCHEDULER
@click.option(
    "--data", type=DIRECTORY, help="Keep data here; otherwise it is not kept."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_000),
    default=9092,
    show_default=True,
    help="The first broker's; the others' follow. 0: any that are free.",
)
@click.option(
    "--zookeeper",
    metavar="java|HOST:PORT",
    help="Java's ZooKeeper, or one that runs; otherwise one of our own is started.",
)
@SETTINGS
def up(
    brokers: int,
    scheduler: str | None,
    data: Path | None,
    port: int,
    zookeeper: str | None,
    settings: tuple[str, ...],
) -> None:
    """Run brokers and a ZooKeeper until SIGTERM or Ctrl-C. Needs no Java.

    Prints the address for clients when all are ready. If a broker ends, the others go
    on, and its end is reported in one line; if ZooKeeper ends, so does the cluster.
    With --data the commands stop, start and kill act on single brokers.
    --set doorkeeper.console.port=N adds a web console.
    """
    from broker.config import DOORKEEPER_CONSOLE_PORT
    from broker.protocol.errors import ConfigError
    from doorkeeper.local_cluster import cluster_supervisor
    from doorkeeper.local_cluster.cluster_settings import ClusterError
    from experiments.processes.children import RunFailed
    from experiments.processes.java import NoJava
    from experiments.processes.zookeeper import NoZooKeeper

    refused = refusing(ClusterError, ConfigError)
    with refused, failing(RunFailed, NoJava, NoZooKeeper):
        keys = overrides(settings, scheduler)
        if keys.get(DOORKEEPER_CONSOLE_PORT.name):
            expect_extra("console", DOORKEEPER_CONSOLE_PORT.name)
        cluster_supervisor.run(brokers, port, data, keys, zookeeper=zookeeper)


_NUMBER = click.argument("number", type=click.IntRange(0, 98), metavar="N")
_OF_CLUSTER = click.option(
    "--data",
    type=DIRECTORY,
    required=True,
    help="The directory that `cluster up --data` was given.",
)


def _command(action: str, number: int, data: Path) -> None:
    from doorkeeper.local_cluster.cluster_control import ControlError, send_command

    with failing(ControlError):
        send_command(data, action, number)


@cluster.command()
@_NUMBER
@_OF_CLUSTER
def stop(number: int, data: Path) -> None:
    """Stop broker N of a running cluster cleanly, and wait for its end."""
    _command("stop", number, data)


@cluster.command()
@_NUMBER
@_OF_CLUSTER
def start(number: int, data: Path) -> None:
    """Start broker N of a running cluster again, and wait until it listens."""
    _command("start", number, data)


@cluster.command()
@_NUMBER
@_OF_CLUSTER
def kill(number: int, data: Path) -> None:
    """Kill broker N of a running cluster, as a crash would."""
    _command("kill", number, data)
