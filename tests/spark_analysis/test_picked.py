"""Intervals of what is picked for its size, and of many that are read together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2
from scipy.stats import t as student

from spark_analysis.statistics.intervals import log_ratio_interval, picked_interval
from spark_analysis.statistics.screening import coverage_level

BLOCKS, EXPERIMENTS, TRUTH = 8, 2000, -0.7


@pytest.mark.parametrize("points", [6, 54])
def test_the_furthest_of_many_points_is_covered_by_its_interval(points: int) -> None:
    """All points have one ratio, 2000 times, and the lowest estimate of it is told.

    Where all entries are found, intervals for those found are as if each were alone.
    Such a one misses the lowest at its upper end: in units of the true error its half
    is the t of 8 blocks times s, the root of a chi square of 7 over 7, and as many
    normal means as there are points all lie above -t s with that power of one's
    probability. Three standard errors of a share of a half are 0.034.
    """
    rng = np.random.default_rng(points)
    covered = Counter[str]()
    for _ in range(EXPERIMENTS):
        logs = rng.normal(TRUTH, 0.1, (points, BLOCKS))
        lowest = logs[logs.mean(axis=1).argmin()]
        found = {
            "picked": picked_interval(lowest, 0.05, points),
            "alone": log_ratio_interval(lowest, coverage_level([0.0] * points, 0.05)),
        }
        for name, interval in found.items():
            covered[name] += interval.low <= TRUTH <= interval.high
    grid = (np.arange(2000) + 0.5) / 2000
    s = np.sqrt(chi2.ppf(grid, BLOCKS - 1) / (BLOCKS - 1))
    expected = float(np.mean(ndtr(student.ppf(0.975, BLOCKS - 1) * s) ** points))
    assert expected < 0.93
    assert covered["alone"] / EXPERIMENTS == pytest.approx(expected, abs=0.034)
    # Three standard errors of a share of 0.95 are 0.015.
    assert covered["picked"] / EXPERIMENTS > 0.935
