"""Confidence intervals in which whole runs are the observations.

For a pooled quantile: Woodruff (1952), the survey statistician's interval for cluster
samples. The share of values below the pooled quantile varies from run to run; its t
interval over runs is carried through the pooled distribution. It is asymmetric where
the tail is, needs no density estimate, is honest about ties (many requests of the same
latency, or without an answer), and in the simulations of
``tests/spark_analysis`` it covers where the percentile bootstrap over runs does not
(0.93 against 0.85 for the p99 of eight runs).

For paired log-ratios: Student's t, which covers down to five blocks; where a log-ratio
is infinite (one side answered nothing) the order statistics of the sign test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import bdtr, stdtrit

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.quantiles import nearest_rank


class Estimate(NamedTuple):
    """A value with its interval; an end that the data cannot bound is infinite."""

    value: float
    low: float
    high: float


def student_t(confidence: float, degrees: int) -> float:
    """Return the two-sided critical value of Student's t."""
    return float(stdtrit(degrees, 0.5 + confidence / 2))


def mean_interval(values: FloatArray, confidence: float) -> Estimate:
    """Return the mean of independent values with its t interval."""
    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return Estimate(mean, -math.inf, math.inf)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    half = student_t(confidence, count - 1) * error
    return Estimate(mean, mean - half, mean + half)


def median_interval(values: FloatArray, confidence: float) -> Estimate:
    """Return the median with the sign test's interval; infinite values are welcome.

    The interval is the tightest pair of order statistics that covers at least
    ``confidence``; with too few values for that it is unbounded.
    """
    ordered = np.sort(values)
    count = len(ordered)
    median = float(ordered[(count - 1) // 2])
    # Leaving out k values at each end misses with probability 2 P(Binomial < k).
    outside = [
        k for k in range(count // 2) if 2 * bdtr(k, count, 0.5) <= 1 - confidence
    ]
    if not outside:
        return Estimate(median, -math.inf, math.inf)
    k = outside[-1]
    return Estimate(median, float(ordered[k]), float(ordered[count - 1 - k]))


def log_ratio_interval(log_ratios: FloatArray, confidence: float) -> Estimate:
    """Return the mean log-ratio by t, or the median if some ratio is 0 or infinite."""
    if np.all(np.isfinite(log_ratios)):
        return mean_interval(log_ratios, confidence)
    return median_interval(log_ratios, confidence)


def picked_interval(log_ratios: FloatArray, alpha: float, of: int) -> Estimate:
    """Return `log_ratio_interval` of one that was picked out of ``of`` for its size.

    The extreme one of many estimates lies beyond its truth more often than each of them
    by itself. So the interval is one that holds for all of them at once (Bonferroni),
    whichever is picked: it misses in a share ``alpha`` at most, where the t interval of
    each does what it promises (of skewed noise it covers less).
    """
    return log_ratio_interval(log_ratios, 1 - alpha / of)


def quantile_interval(
    runs: Sequence[FloatArray], pooled: FloatArray, level: Fraction, confidence: float
) -> Estimate:
    """Return the pooled quantile of runs with Woodruff's interval.

    ``runs`` are ascending, and so is ``pooled``, which holds all their values. Runs may
    differ in length: the share is a ratio estimate. Where many values equal the
    quantile, the share below them and the share up to them vary differently: each end
    of the interval is carried by its own. Cost: O(runs x log n).
    """
    value = nearest_rank(pooled, level)
    count = len(runs)
    if count < 2:
        return Estimate(value, 0.0, math.inf)
    t = student_t(confidence, count - 1)
    lower = float(level) - t * share_error(runs, value, "left")
    upper = float(level) + t * share_error(runs, value, "right")
    low = value_at(pooled, lower) if lower > 0 else 0.0
    high = value_at(pooled, upper) if upper < 1 else math.inf
    return Estimate(value, low, high)


def share_residuals(
    runs: Sequence[FloatArray], value: float, side: Literal["left", "right"] = "right"
) -> FloatArray:
    """Return how many more values up to ``value`` each run has than its part of all.

    Runs are ascending; ``left`` counts the values below it. The sum is 0.
    """
    sizes = np.array([len(run) for run in runs], dtype=np.float64)
    counts = np.array([np.searchsorted(run, value, side) for run in runs])
    residuals: FloatArray = counts - counts.sum() / sizes.sum() * sizes
    return residuals


def share_error(
    runs: Sequence[FloatArray], value: float, side: Literal["left", "right"] = "right"
) -> float:
    """Return the standard error over runs of the share of all values up to ``value``.

    At least two ascending runs; a ratio estimate, for they may differ in length.
    """
    count = len(runs)
    residuals = share_residuals(runs, value, side)
    squares = float(residuals @ residuals)
    return math.sqrt(count / (count - 1) * squares) / sum(map(len, runs))


def exceedance_band(
    runs: Sequence[FloatArray], values: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of the share of requests at or above each value, over runs.

    Runs are ascending. Each value's interval is Student's t of a ratio estimate and
    holds by itself; with one run nothing is bounded. Cost: O(runs x values x log n).
    """
    count = len(runs)
    if count < 2:
        return np.zeros(len(values)), np.ones(len(values))
    sizes = np.array([len(run) for run in runs], dtype=np.float64)
    above = np.stack([len(run) - np.searchsorted(run, values, "left") for run in runs])
    share = above.sum(axis=0) / sizes.sum()
    residuals = above - sizes[:, None] * share
    squares = np.sum(residuals**2, axis=0)
    error = np.sqrt(count / (count - 1) * squares) / sizes.sum()
    half = student_t(confidence, count - 1) * error
    return np.maximum(share - half, 0.0), np.minimum(share + half, 1.0)


def value_at(pooled: FloatArray, share: float) -> float:
    """Return the value at an estimated share, forgiving its last few bits."""
    return float(pooled[max(1, math.ceil(len(pooled) * share - 1e-9)) - 1])


def hodges_lehmann(values: FloatArray) -> float:
    """Return the median of all pairwise means: a shift that no outlier moves far."""
    first, second = np.triu_indices(len(values))
    return float(np.median((values[first] + values[second]) / 2))
