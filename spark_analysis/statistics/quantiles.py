"""Exact quantiles by nearest rank, with unanswered requests as plus infinity.

The p-quantile of n values is the ``ceil(n p)``-th smallest: NumPy's ``inverted_cdf``
and Spark's ``percentile_disc``. It is always an observed value, and exists if some
values are infinite. Levels are exact fractions, so that 0.07 x 100 is 7 and not 8.
Sketches are not used: at p99.9 their rank error is larger than the tail.
"""

from __future__ import annotations

from fractions import Fraction

from spark_analysis.statistics import FloatArray


def rank(count: int, level: Fraction) -> int:
    """Return the rank (from 1) of the quantile among ``count`` ascending values."""
    return max(1, -(-count * level.numerator // level.denominator))


def nearest_rank(ascending: FloatArray, level: Fraction) -> float:
    """Return the quantile of ascending values.

    >>> import numpy as np
    >>> nearest_rank(np.arange(1.0, 101.0), Fraction(99, 100))
    99.0
    """
    assert len(ascending) > 0, "no values, no quantile"
    return float(ascending[rank(len(ascending), level) - 1])
