"""What a factor does to the ratios: every arm against the baseline at each level.

The ratio at a level is the mean over the points that have it, taken in each block
first: the block stays the unit. Points at which the cell may not be shown are left out
of the mean and counted, since a mean over half of the points is another question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spark_analysis.comparison import Comparison, Key
from spark_analysis.metrics import Metric
from spark_analysis.statistics.intervals import Estimate, mean_interval
from spark_analysis.statistics.ratios import factor, log_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRatio:
    """One arm against the baseline in one class, over the points of one level.

    ``ratio`` is None where no point may be told; ``points`` are those told, of ``of``.
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
                _level_ratio(here, metric, (name, level), (class_name, arm))
                for class_name in classes
                for arm in arms
            ]
    return tuple(found)


def _level_ratio(
    here: Sequence[Comparison], metric: Metric, where: tuple[str, str], key: Key
) -> LevelRatio:
    class_name, arm = key
    told = [c for c in here if _told(c, class_name, arm, metric)]
    by_block: dict[int, list[float]] = {}
    for comparison in told:
        for block, log in _logs(comparison, class_name, arm, metric).items():
            by_block.setdefault(block, []).append(log)
    # A block that is missing at some point would change what is averaged.
    whole = [float(np.mean(v)) for v in by_block.values() if len(v) == len(told)]
    ratio = None
    if whole and told:
        mean = mean_interval(np.array(whole), here[0].manifest.options.confidence)
        ratio = Estimate(*(factor(end) for end in mean))
    return LevelRatio(
        factor=where[0],
        level=where[1],
        class_name=class_name,
        arm=arm,
        ratio=ratio,
        points=len(told) if ratio else 0,
        of=len(here),
    )


def _told(comparison: Comparison, class_name: str, arm: str, metric: Metric) -> bool:
    there = class_name in comparison.class_names and arm in comparison.arm_names
    if not there or comparison.cell(class_name, arm, metric.name).refused:
        return False
    logs = _logs(comparison, class_name, arm, metric)
    return all(math.isfinite(log) for log in logs.values())


def _logs(
    comparison: Comparison, class_name: str, arm: str, metric: Metric
) -> dict[int, float]:
    values: dict[str, dict[int, float]] = {}
    for run in comparison.run_values:
        if run.class_name == class_name:
            values.setdefault(run.arm, {})[run.block] = run.values[metric.name]
    base: dict[int, float] = values.get(comparison.manifest.baseline, {})
    arms: Sequence[int] = sorted(values.get(arm, {}))
    return {block: log_ratio(values[arm][block], base[block]) for block in arms}
