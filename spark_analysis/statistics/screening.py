"""Many comparisons over the points of a sweep: false discoveries, kept to a share.

A map of fifty points asks fifty times as many questions as one experiment. To be right
in all of them at once (max-T over everything) would cost so much power with a dozen
blocks that the map would stay empty; a map may be wrong in a few places, as long as it
says in how many. Benjamini & Hochberg (1995) keep the expected share of false entries
among all entries below alpha; it holds for independent points and for positively
dependent ones, which comparisons of like policies under like loads are (Benjamini &
Yekutieli 2001). The intervals that are shown for the entries found are widened to match
(false coverage rate, Benjamini & Yekutieli 2005), since they were picked for being far
from 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import false_discovery_control

from spark_analysis.statistics import FloatArray


def discovery_q(p: Sequence[float]) -> FloatArray:
    """Return the smallest share of false discoveries at which each p is one."""
    if not p:
        return np.array([])
    return np.asarray(false_discovery_control(np.asarray(p), method="bh"))


def coverage_level(q: Sequence[float], alpha: float) -> float:
    """Return the confidence of intervals for those with ``q`` below ``alpha``.

    1 - alpha if all were found, closer to 1 the fewer were picked out of many.
    """
    found = sum(value < alpha for value in q)
    return 1 - alpha * max(found, 1) / max(len(q), 1)
