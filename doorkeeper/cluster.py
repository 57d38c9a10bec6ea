"""``doorkeeper cluster``: several brokers and their ZooKeeper, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from doorkeeper.shared import (
    DIRECTORY,
    SCHEDULER,
    SETTINGS,
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
@SETTINGS
def up(
    brokers: int,
    scheduler: str | None,
    data: Path | None,
    port: int,
    settings: tuple[str, ...],
) -> None:
    """Run brokers and a ZooKeeper until SIGTERM or Ctrl-C.

    Prints the address for clients when all are ready. If a process ends by itself the
    others are stopped, and it is named.
    """
    from broker.protocol.errors import ConfigError
    from doorkeeper.at_work import cluster as at_work
    from experiments.processes.children import RunFailed
    from experiments.processes.java import NoJava
    from experiments.processes.zookeeper import NoZooKeeper

    refused = refusing(at_work.ClusterError, ConfigError)
    with refused, failing(RunFailed, NoJava, NoZooKeeper):
        at_work.run(brokers, port, data, overrides(settings, scheduler))
