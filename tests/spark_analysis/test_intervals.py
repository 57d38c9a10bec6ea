"""Intervals of means and medians against SciPy and hand-computed values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from spark_analysis.statistics.intervals import (
    log_ratio_interval,
    mean_interval,
    median_interval,
)


def test_mean_interval_is_scipys() -> None:
    values = np.random.default_rng(3).normal(size=8)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = mean_interval(values, 0.95)
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)


def test_one_run_has_no_interval() -> None:
    assert mean_interval(np.array([2.0]), 0.95) == (2.0, -math.inf, math.inf)


def test_median_interval_leaves_out_what_the_binomial_allows() -> None:
    """Eight values: the extremes cover 1 - 2/256; excluding one covers only 0.93."""
    values = np.array([5.0, 1.0, 4.0, 8.0, 2.0, 7.0, 3.0, 6.0])
    assert median_interval(values, 0.95) == (4.0, 1.0, 8.0)
    assert median_interval(values, 0.92) == (4.0, 2.0, 7.0)
    assert median_interval(values[:5], 0.95).high == math.inf


def test_an_infinite_log_ratio_moves_the_interval_to_order_statistics() -> None:
    values = np.array([-math.inf, -2.0, -2.5, -1.0, -3.0, -math.inf, -2.2, -2.1])
    assert log_ratio_interval(values, 0.95) == (-2.5, -math.inf, -1.0)
