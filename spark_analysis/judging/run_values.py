"""What each run measured, and arms paired block by block.

In a block every arm met the same requests, so a run is compared with its counterpart of
the same block and with nothing else. All comparisons take their pairs from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.ratios import log_ratio


class Key(NamedTuple):
    """A class under an arm."""

    class_name: str
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValue:
    """One class in one run: counts by outcome, and every metric's value by name.

    A quantile of a round of episodes is the arm's own, moved by what the round adds to
    it (``statistics.rounds``): the geometric mean over rounds is the pooled quantile. A
    round without a value (NaN there) has none of that name.
    """

    class_name: str
    arm: str
    block: int
    counts: Mapping[str, int]
    values: Mapping[str, float]


def values_by_block(
    runs: Sequence[RunValue], key: Key, metric: str
) -> dict[int, float]:
    """Return a metric's value in each block, blocks ascending."""
    found = {
        run.block: run.values[metric]
        for run in runs
        if (run.class_name, run.arm) == key and metric in run.values
    }
    return dict(sorted(found.items()))


def logs_by_block(
    runs: Sequence[RunValue], key: Key, base: str, metric: str
) -> dict[int, float]:
    """Return the log-ratio of an arm to the arm ``base`` in each block, ascending.

    Infinite where one side is zero or infinite: such a block still says who was lower.
    """
    bases = values_by_block(runs, Key(key.class_name, base), metric)
    values = values_by_block(runs, key, metric)
    return {
        block: log_ratio(value, bases[block])
        for block, value in values.items()
        if block in bases
    }


def paired_logs(
    runs: Sequence[RunValue], key: Key, base: str, metric: str
) -> FloatArray:
    """Return the same as `logs_by_block`, without the blocks."""
    return np.array(list(logs_by_block(runs, key, base, metric).values()))
