"""Confidence intervals over sessions: of a mean, and of a median.

For paired log-ratios: Student's t, or the order statistics of the sign test if a
log-ratio is infinite (one arm answered nothing).
"""

from __future__ import annotations

import math
from typing import NamedTuple

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
    """Return the median with the sign test's interval; values may be infinite.

    The interval is the tightest pair of order statistics that covers at least
    ``confidence``. It is unbounded if there are too few values.
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
