"""Intervals, bootstrap and equivalence against SciPy and hand-computed values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from spark_analysis.statistics.bootstrap import (
    block_weights,
    ratio_interval,
    resampled_quantiles,
)
from spark_analysis.statistics.intervals import (
    hodges_lehmann,
    log_ratio_interval,
    mean_interval,
    median_interval,
)
from spark_analysis.statistics.quantiles import nearest_rank
from tests.spark_analysis.pooled import pooled_interval

P90 = Fraction(9, 10)


def test_mean_interval_is_scipys() -> None:
    values = np.random.default_rng(3).normal(size=8)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = mean_interval(values, 0.95)
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)


def test_one_run_has_no_interval() -> None:
    assert mean_interval(np.array([2.0]), 0.95) == (2.0, -math.inf, math.inf)
    assert pooled_interval([np.arange(10.0)], P90, 0.95) == (8.0, 0.0, math.inf)


def test_median_interval_leaves_out_what_the_binomial_allows() -> None:
    """Eight values: the extremes cover 1 - 2/256; leaving out one, only 0.93."""
    values = np.array([5.0, 1.0, 4.0, 8.0, 2.0, 7.0, 3.0, 6.0])
    assert median_interval(values, 0.95) == (4.0, 1.0, 8.0)
    assert median_interval(values, 0.92) == (4.0, 2.0, 7.0)
    assert median_interval(values[:5], 0.95).high == math.inf


def test_an_infinite_log_ratio_moves_the_interval_to_order_statistics() -> None:
    values = np.array([-math.inf, -2.0, -2.5, -1.0, -3.0, -math.inf, -2.2, -2.1])
    assert log_ratio_interval(values, 0.95) == (-2.5, -math.inf, -1.0)


def test_woodruff_interval_of_two_runs_by_hand() -> None:
    """Runs 0..99 and 50..149: the pooled median is 74; 75 and 25 values are below.

    The residuals are +-25, the standard error sqrt(2 x 1250)/200 = 0.25, and t with one
    degree of freedom is exactly 1 at 50 %: the shares are 1/4 and 3/4, the values 49
    and 99. At 75 % t is 2.41, and no share is left on either side.
    """
    runs = [np.arange(0.0, 100.0), np.arange(50.0, 150.0)]
    assert pooled_interval(runs, Fraction(1, 2), 0.5) == (74.0, 49.0, 99.0)
    assert pooled_interval(runs, Fraction(1, 2), 0.75) == (74.0, 0.0, math.inf)


def test_woodruff_interval_of_identical_runs_is_a_point() -> None:
    run = np.arange(1.0, 1001.0)
    assert pooled_interval([run] * 5, P90, 0.95) == (900.0, 900.0, 900.0)


def test_the_largest_of_what_was_seen_bounds_nothing_above() -> None:
    run = np.arange(1.0, 4.0)
    assert pooled_interval([run] * 4, Fraction(1), 0.95) == (3.0, 3.0, math.inf)


def test_a_lost_quantile_is_bounded_below_by_the_runs_that_lost_less() -> None:
    """Of 100 requests 2 and 18 got no answer: pooled, 10 %, and the p95 is infinite.

    The shares answered are 0.98 and 0.82, the standard error 0.08; at 50 % t is 1 and
    the lower end lies at 0.87 of all answers, which is a number.
    """
    runs = [np.arange(1.0, 101.0) for _ in range(2)]
    runs[0][98:], runs[1][82:] = math.inf, math.inf
    found = pooled_interval(runs, Fraction(19, 20), 0.5)
    assert found == (math.inf, np.sort(np.concatenate(runs))[173], math.inf)


def test_hodges_lehmann_by_hand() -> None:
    """Walsh averages of 1, 2, 6: 1, 1.5, 3.5, 2, 4, 6 with median 2.75."""
    assert hodges_lehmann(np.array([1.0, 2.0, 6.0])) == 2.75


def test_hodges_lehmann_shrugs_at_an_outlier() -> None:
    calm = np.linspace(-0.1, 0.1, 9)
    assert hodges_lehmann(np.append(calm, 1e6)) < 0.2


@pytest.mark.parametrize("quantile", ["1/2", "9/10", "99/100"])
def test_bootstrap_quantiles_equal_those_of_repeated_data(quantile: str) -> None:
    generator = np.random.default_rng(11)
    sizes = (50, 70, 1, 200)
    runs = [np.sort(generator.integers(0, 90, size=n).astype(float)) for n in sizes]
    weights = block_weights(4, 60, seed=5)
    level = Fraction(quantile)
    found = resampled_quantiles(runs, level, weights)
    for value, row in zip(found, weights, strict=True):
        drawn = np.concatenate(
            [np.repeat(r, k) for r, k in zip(runs, row, strict=True)]
        )
        assert value == nearest_rank(np.sort(drawn), level)


def test_weights_are_the_same_wherever_they_are_drawn() -> None:
    first, second = block_weights(8, 100, seed=9), block_weights(8, 100, seed=9)
    assert np.array_equal(first, second)
    assert np.all(first.sum(axis=1) == 8)


def test_bootstrap_ratio_of_paired_arms_has_no_spread_when_one_is_twice_the_other() -> (
    None
):
    runs = [np.sort(np.random.default_rng(n).exponential(size=300)) for n in range(6)]
    weights = block_weights(6, 200, seed=1)
    slow = resampled_quantiles([2 * run for run in runs], P90, weights)
    fast = resampled_quantiles(runs, P90, weights)
    assert ratio_interval(slow, fast, 0.95) == (2.0, 2.0, 2.0)


def test_bootstrap_ratio_is_refused_where_a_quantile_is_infinite() -> None:
    assert ratio_interval(np.array([1.0, math.inf]), np.ones(2), 0.95) is None
