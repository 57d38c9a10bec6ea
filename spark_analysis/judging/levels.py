"""What a factor does to the ratios: every arm against the baseline at each level.

The ratio at a level is the mean over all points that have it, taken in each block
first: the block stays the unit. There is none where the arms are not compared at some
of these points: those are the heavy ones as a rule, and a mean over the rest would be
the answer to another question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.run_values import Key, logs_by_block
from spark_analysis.statistics.intervals import Estimate, mean_interval
from spark_analysis.statistics.ratios import ratio_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRatio:
    """One arm against the baseline in one class, over the points of one level.

    ``ratio`` is None unless the arms are compared at all ``of`` points of the level;
    ``points`` says at how many they are.
    """

    factor: str
    level: str
    class_name: str
    arm: str
    ratio: Estimate | None
    points: int
    of: int


def level_ratios(
    comparisons: Sequence[Comparison],
    factors: Mapping[str, Sequence[str]],
    metric: Metric,
) -> tuple[LevelRatio, ...]:
    """Return the ratios of every level of every factor, rivals only."""
    classes = dict.fromkeys(name for of in comparisons for name in of.class_names)
    arms = dict.fromkeys(name for of in comparisons for name in of.rivals)
    found = []
    for name, levels in factors.items():
        for level in levels:
            here = [
                comparison
                for comparison in comparisons
                if comparison.manifest.point.levels.get(name) == level
            ]
            found += [
                _level_ratio(here, metric, name, level, Key(class_name, arm))
                for class_name in classes
                for arm in arms
            ]
    return tuple(found)


def _level_ratio(
    here: Sequence[Comparison], metric: Metric, name: str, level: str, key: Key
) -> LevelRatio:
    compared = [c for c in here if _comparable(c, key, metric)]
    by_block: dict[int, list[float]] = {}
    for comparison in compared:
        for block, log in _logs(comparison, key, metric).items():
            by_block.setdefault(block, []).append(log)
    # A block that is missing at some point would change what is averaged.
    whole = [float(np.mean(v)) for v in by_block.values() if len(v) == len(compared)]
    ratio = None
    if whole and len(compared) == len(here):
        mean = mean_interval(np.array(whole), here[0].manifest.options.confidence)
        ratio = ratio_of(mean)
    return LevelRatio(
        factor=name,
        level=level,
        class_name=key.class_name,
        arm=key.arm,
        ratio=ratio,
        points=len(compared),
        of=len(here),
    )


def _comparable(comparison: Comparison, key: Key, metric: Metric) -> bool:
    there = key.class_name in comparison.class_names and key.arm in comparison.arm_names
    if not there or comparison.cell(*key, metric.name).compared is None:
        return False
    return all(map(math.isfinite, _logs(comparison, key, metric).values()))


def _logs(comparison: Comparison, key: Key, metric: Metric) -> dict[int, float]:
    baseline = comparison.manifest.baseline
    return logs_by_block(comparison.run_values, key, baseline, metric.name)
