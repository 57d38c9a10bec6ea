"""Do arms differ? One p-value out of three tests, none of which is enough by itself.

`sign_flip.max_t` is exact where the two runs of a block could as well have been each
other's. `bootstrap_t` asks for the mean alone and learns from the blocks how it varies.
`skewed_t` allows for a tail that the blocks need not show. The largest p counts: the
error is at most that of the test whose assumption holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.bootstrap_t import bootstrap_t
from spark_analysis.statistics.sign_flip import max_t
from spark_analysis.statistics.skewed_t import skewed_t


def difference_p(
    log_ratios: FloatArray, groups: Sequence[str], seed: int = 0
) -> FloatArray:
    """Return the p-value of each column of (blocks, contrasts), adjusted over all.

    ``groups`` names for each contrast those that it shares noise with: the class. A
    missing block is NaN.
    """
    exact = max_t(log_ratios, seed)
    if not exact.size:
        return exact
    p = np.maximum(exact, bootstrap_t(log_ratios, seed))
    return np.maximum(p, skewed_t(log_ratios, groups, seed))
