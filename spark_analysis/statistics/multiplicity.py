"""Adjustment of the p-values of a family.

Holm's rule controls the probability of any false rejection under any dependence (Holm
1979). A map of a sweep tests one question at many points. Benjamini and Hochberg's rule
(1995) keeps the expected share of false rejections there below alpha, for independent
or positively dependent tests.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import false_discovery_control

from spark_analysis.statistics import FloatArray


def holm(p: FloatArray) -> FloatArray:
    """Return Holm's adjusted p-values."""
    count = len(p)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(count, 0, -1))
    adjusted: FloatArray = np.empty(count)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted


def discovery_q(p: FloatArray) -> FloatArray:
    """Return the smallest false discovery rate at which each test is a discovery."""
    return np.asarray(false_discovery_control(p, method="bh")) if len(p) else p
