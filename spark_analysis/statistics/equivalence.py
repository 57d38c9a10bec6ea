"""Two one-sided tests: when two arms may be called the same.

A difference that was not found is not a difference that is not there. Sameness is
claimed only where the 90 % interval of the log-ratio lies inside a margin named before
the experiment (Schuirmann 1987): both one-sided t tests reject at 5 %.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtr

from spark_analysis.statistics import FloatArray


def tost(log_ratios: FloatArray, margin: float) -> float:
    """Return the p-value of "the ratio lies outside 1/(1 + margin) .. 1 + margin".

    1 where it cannot be judged: fewer than two blocks, or an infinite ratio.
    """
    count = len(log_ratios)
    if count < 2 or not np.all(np.isfinite(log_ratios)):
        return 1.0
    mean = float(np.mean(log_ratios))
    room = math.log1p(margin) - abs(mean)
    error = float(np.std(log_ratios, ddof=1)) / math.sqrt(count)
    if error == 0.0:
        return 0.0 if room > 0 else 1.0
    # The nearer bound has the larger of the two one-sided p-values.
    return float(stdtr(count - 1, -room / error))
