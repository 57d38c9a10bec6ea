"""``doorkeeper simulate``: clusters in virtual time, a bad day for each seed."""

from __future__ import annotations

from functools import partial

import click


class _Seeds(click.ParamType[range]):
    """A range of seeds, A..B, both ends included."""

    name = "A..B"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        first, dots, last = str(value).partition("..")
        if not (dots and first.isdecimal() and last.isdecimal()):
            self.fail(f"{value!r}, expected two numbers as in 0..199", param, ctx)
        if int(last) < int(first):
            self.fail(f"{value!r} has no seed in it", param, ctx)
        return range(int(first), int(last) + 1)


class _Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers of faults, separated by commas; an empty text is none."""

    name = "N,N"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        found = [each for each in str(value).split(",") if each]
        if not all(each.isdecimal() for each in found):
            self.fail(f"{value!r}, expected numbers as in 3,7", param, ctx)
        return tuple(map(int, found))


@click.command()
@click.option(
    "--seed", type=click.IntRange(min=0), help="One seed, reported in detail."
)
@click.option("--seeds", type=_Seeds(), help="Many seeds, both ends included.")
@click.option("--minutes", type=click.FloatRange(min=0), help="Stop after so long.")
@click.option("--faults", type=_Numbers(), help="With --seed: none but these.")
@click.option(
    "--zookeeper",
    is_flag=True,
    help="Brokers under a ZooKeeper, with a controller of theirs, instead of a script.",
)
@click.option(
    "--transactions",
    is_flag=True,
    help="Also producers of transactions, copiers and readers of committed records.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that judge seeds side by side.",
)
@click.option("--shrink/--no-shrink", default=True, help="Look for fewer faults.")
def simulate(
    seed: int | None,
    seeds: range | None,
    minutes: float | None,
    faults: tuple[int, ...] | None,
    zookeeper: bool,
    transactions: bool,
    shrink: bool,
    jobs: int,
) -> None:
    """Simulate clusters under faults in virtual time, and report violated promises.

    Each seed is a cluster of the real broker with its load and its faults. The promises
    must hold during the faults; after recovery, the cluster must make progress. Without
    a seed, seeds count up from 0. Exit status 1 if anything does not hold.
    """
    if seed is not None and seeds is not None:
        raise click.UsageError("--seed or --seeds, not both")
    if faults is not None and seed is None:
        raise click.UsageError("--faults belongs to a --seed")
    if seed is None and seeds is None and minutes is None:
        raise click.UsageError("one of --seed, --seeds and --minutes is needed")
    from experiments.records.environment import code
    from simulation.swarm.swarm_command import Judge

    judge = Judge(
        echo=click.echo,
        progress=partial(click.echo, err=True),
        commit=code()["commit"],
        zookeeper=zookeeper,
        transactions=transactions,
        shrink=shrink,
    )
    if seed is not None:
        sound = judge.one(seed, faults)
    else:
        sound = judge.many(seeds, minutes, jobs=jobs)
    if not sound:
        raise SystemExit(1)
