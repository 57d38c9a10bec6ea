"""Cost of changes: this tree's broker against the one of an earlier commit.

Both brokers run at the same time, pinned to one CPU, and are measured alternately, so
other load on the machine affects both. The figure is work per second of the broker's
own CPU time. Both have this tree's client.

``python -m bench.before COMMIT [ROUNDS]``
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench import clients
from bench.beside import Measure, volume_measures, warm_up_volumes
from bench.brokers import (
    Running,
    directory,
    doorkeeper,
    on_the_load_cpu,
)
from bench.small_requests import TOPIC, closed_loop, saturated

_ROUNDS = 31
_CONNECTIONS = (1, 16, 256)
_PARTITIONS = 40
_SECONDS = 0.4
_WARM_UP_SECONDS = 2.0
_VOLUMES = {100: 200_000, 100_000: 1_000}
# Level of the interval for the median ratio of the rounds.
_CONFIDENCE = 0.95


def main(commit: str, rounds: int = _ROUNDS) -> None:
    """Print, per measure, the median ratio of this tree to ``commit``."""
    with ExitStack() as stack:
        tree = stack.enter_context(_checked_out(commit))
        brokers = [
            stack.enter_context(doorkeeper()),
            stack.enter_context(doorkeeper(tree=tree)),
        ]
        stack.enter_context(on_the_load_cpu())
        for broker in brokers:
            _warm_up(broker)
        for measure in _measures():
            ratios = [_ratio(measure, brokers, number) for number in range(rounds)]
            low, high = median_interval(ratios)
            middle = statistics.median(ratios)
            print(f"{measure.name}: {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)


def median_interval(
    values: Sequence[float], confidence: float = _CONFIDENCE
) -> tuple[float, float]:
    """Return order statistics that enclose the median with at least ``confidence``.

    Distribution-free (binomial, as in Conover, Practical Nonparametric Statistics,
    1999, section 3.2). The ends are infinite if there are too few values.
    """
    ordered, count = sorted(values), len(values)
    below, cut = 0.0, 0
    while below + math.comb(count, cut) / 2**count <= (1 - confidence) / 2:
        below += math.comb(count, cut) / 2**count
        cut += 1
    if not cut:
        return -math.inf, math.inf
    return ordered[cut - 1], ordered[count - cut]


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary worktree."""
    with directory() as made:
        tree = made / "tree"
        add = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        subprocess.run(add, check=True)
        try:
            yield tree
        finally:
            remove = ["git", "worktree", "remove", "--force", str(tree)]
            subprocess.run(remove, check=True)


def _warm_up(broker: Running) -> None:
    clients.create_topic(broker, TOPIC, _PARTITIONS)
    closed_loop(broker, 16, _WARM_UP_SECONDS)
    warm_up_volumes(broker, _VOLUMES)
    broker.pin()


def _measures() -> Iterator[Measure]:
    for connections in _CONNECTIONS:
        yield Measure(
            name=f"PRODUCE of one record, acks=1, {connections} connections",
            units=("requests/s", "requests/CPU s"),
            take=partial(saturated, connections=connections, seconds=_SECONDS),
        )
    yield Measure(
        name=f"PRODUCE of one record to each of {_PARTITIONS} partitions",
        units=("requests/s", "requests/CPU s"),
        take=partial(
            saturated, connections=1, seconds=_SECONDS, partitions=_PARTITIONS
        ),
    )
    yield from volume_measures(_VOLUMES)


def _ratio(measure: Measure, brokers: Sequence[Running], number: int) -> float:
    """Return the ratio of work per CPU second; the first broker alternates."""
    ours, theirs = brokers
    order = (ours, theirs) if number % 2 else (theirs, ours)
    per_cpu_s = {id(broker): measure.take(broker)[1] for broker in order}
    return per_cpu_s[id(ours)] / per_cpu_s[id(theirs)]


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
