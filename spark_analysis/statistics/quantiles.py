"""Exact quantiles by nearest rank, with unanswered requests as plus infinity.

The p-quantile of n values is the ``ceil(n p)``-th smallest: NumPy's ``inverted_cdf``
and Spark's ``percentile_disc``. It is always an observed value, it exists where some
values are infinite, and levels are exact fractions, so that 0.07 x 100 is 7 and not 8.
Sketches are refused: at p99.9 their rank error is larger than the tail.
"""

from __future__ import annotations

from fractions import Fraction

from spark_analysis.statistics import FloatArray


def rank(count: int, level: Fraction) -> int:
    """Return which of ``count`` ascending values, from 1, is the quantile."""
    return max(1, -(-count * level.numerator // level.denominator))


def nearest_rank(ascending: FloatArray, level: Fraction) -> float:
    """Return the quantile of values that stand in ascending order.

    >>> import numpy as np
    >>> nearest_rank(np.arange(1.0, 101.0), Fraction(99, 100))
    99.0
    """
    assert len(ascending) > 0, "no values, no quantile"
    return float(ascending[rank(len(ascending), level) - 1])
