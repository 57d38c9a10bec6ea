"""Step-down adjustment: p-values that hold for a whole family of contrasts at once.

The largest statistic that chance gives anywhere in the family is what each statistic is
held against; once the largest contrast is found, the next has to beat only the others
(Westfall & Young 1993; for resamples, Romano & Wolf 2005). Holm's rule needs p-values
alone and assumes nothing of their dependence.
"""

from __future__ import annotations

import numpy as np

from spark_analysis.statistics import FloatArray


def step_down(statistics: FloatArray) -> FloatArray:
    """Return the adjusted p-value of each column of (draws, contrasts).

    Row 0 is what was observed, the others what chance gives; larger is more extreme.
    """
    observed = statistics[0]
    order = np.argsort(-observed, kind="stable")
    # The largest statistic among the contrasts that are not larger than this one.
    rest = np.maximum.accumulate(statistics[:, order[::-1]], axis=1)[:, ::-1]
    reached = rest >= observed[order] - 1e-9
    adjusted: FloatArray = np.empty_like(observed)
    adjusted[order] = np.maximum.accumulate(np.mean(reached, axis=0))
    return adjusted


def holm(p: FloatArray) -> FloatArray:
    """Return Holm's adjusted p-values, whatever the dependence of the tests."""
    count = len(p)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(count, 0, -1))
    adjusted: FloatArray = np.empty(count)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted
