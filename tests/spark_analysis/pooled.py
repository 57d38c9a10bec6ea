"""Woodruff's interval of runs, with the pooling that the analysis does once for all."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.intervals import Estimate, quantile_interval


def pooled_interval(
    runs: Sequence[FloatArray], level: Fraction, confidence: float
) -> Estimate:
    """Return the pooled quantile of ascending runs with its interval."""
    pooled = np.sort(np.concatenate(runs))
    return quantile_interval(runs, pooled, level, confidence)
