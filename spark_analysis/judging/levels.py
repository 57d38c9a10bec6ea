"""Ratios of every arm to the baseline at each level of a sweep's factors.

The ratio at a level is the mean over all points with that level, taken in each session
first, so that the session stays the unit. It is missing if the arm was refused at one
of these points: the mean over the other points is a different quantity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spark_analysis.judging.comparison import Comparison, Key
from spark_analysis.judging.contrast import contrast_from
from spark_analysis.judging.metrics import Metric
from spark_analysis.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRatio:
    """One arm against the baseline in one class, over the points of one level.

    ``ratio`` is None unless the arms are compared at all ``of`` points of the level;
    ``points`` is the number of points with a comparison.
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
    contrasts = [
        cell.contrast
        for of in here
        for cell in of.cells
        if (cell.class_name, cell.arm, cell.metric.name) == (*key, metric.name)
        and cell.contrast is not None
        and np.all(np.isfinite(cell.contrast.values))
    ]
    by_session: dict[int, list[float]] = {}
    for contrast in contrasts:
        for session, log in contrast.logs.items():
            by_session.setdefault(session, []).append(log)
    # A session that lacks some point would change the average.
    whole = {
        session: float(np.mean(logs))
        for session, logs in by_session.items()
        if len(logs) == len(contrasts)
    }
    ratio = None
    if whole and len(contrasts) == len(here):
        ratio = contrast_from(whole, metric.margin, here[0].rules).ratio
    return LevelRatio(
        factor=name,
        level=level,
        class_name=key.class_name,
        arm=key.arm,
        ratio=ratio,
        points=len(contrasts),
        of=len(here),
    )
