"""Confidence intervals over sessions: of a mean, and of a median.

For paired log-ratios: Student's t; where a log-ratio is infinite (one arm answered
nothing) the order statistics of the sign test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import bdtr, stdtrit

from spark_analysis.statistics import FloatArray


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


def value_at(pooled: FloatArray, share: float) -> float:
    """Return the value at an estimated share, forgiving its last few bits."""
    return float(pooled[max(1, math.ceil(len(pooled) * share - 1e-9)) - 1])
