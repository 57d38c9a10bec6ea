"""Ratios and their logarithms, with zero or infinity on either side.

A quantile is infinite if too many requests got no answer, and goodput can be zero. Such
a block still shows the better arm: its log-ratio is infinite, not missing.
"""

from __future__ import annotations

import math

from spark_analysis.statistics.intervals import Estimate


def log_ratio(value: float, base: float) -> float:
    """Return log(value / base); 0 if both are equal, infinite or not."""
    if value == base:
        return 0.0
    if value == 0.0 or base == math.inf:
        return -math.inf
    if base == 0.0 or value == math.inf:
        return math.inf
    return math.log(value / base)


def factor(log: float) -> float:
    """Return the ratio of a log-ratio; infinite if it exceeds the largest float."""
    return math.exp(log) if log < 700 else math.inf


def ratio_of(log: Estimate) -> Estimate:
    """Return the estimate of a ratio from the estimate of its logarithm."""
    return Estimate(*map(factor, log))
