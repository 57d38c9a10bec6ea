"""Exact quantiles by nearest rank, with unanswered requests as plus infinity.

The p-quantile of n values is the ``ceil(n p)``-th smallest: NumPy's ``inverted_cdf``
and Spark's ``percentile_disc``. It is always an observed value, it exists where some
values are infinite, and levels are exact fractions, so that 0.07 x 100 is 7 and not 8.
Sketches are refused: at p99.9 their rank error is larger than the tail.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from spark_analysis.statistics import FloatArray


def rank(count: int, level: Fraction) -> int:
    """Return which of ``count`` ascending values, from 1, is the quantile."""
    return max(1, -(-count * level.numerator // level.denominator))


def nearest_rank(ascending: FloatArray, level: Fraction) -> float:
    """Return the quantile of values that stand in ascending order.

    >>> nearest_rank(np.arange(1.0, 101.0), Fraction(99, 100))
    99.0
    """
    assert len(ascending) > 0, "no values, no quantile"
    return float(ascending[rank(len(ascending), level) - 1])


def exceedance_curve(
    ascending: FloatArray, points: int
) -> tuple[FloatArray, FloatArray]:
    """Return values and the share of all values at or above each (a CCDF to draw).

    At most ``points`` ranks are kept, evenly spaced on a logarithmic scale of shares,
    so that each decade of the tail is drawn with the same detail. Infinite values count
    in the shares, but are not returned: the curve of an arm that lost requests ends
    above its neighbours'.
    """
    count = len(ascending)
    shares = np.geomspace(1.0, 1.0 / count, points)
    above = np.unique(np.clip(np.rint(shares * count).astype(np.int64), 1, count))[::-1]
    values = ascending[count - above]
    finite = np.isfinite(values)
    return values[finite], (above / count)[finite]
