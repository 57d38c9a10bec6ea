"""Adjustment of the p-values of a family.

Holm's rule controls the probability of any false rejection, whatever the dependence
(Holm 1979). A map of a sweep asks one question at many points: there Benjamini and
Hochberg's rule (1995) keeps the expected share of false rejections among all below
alpha, where the tests are independent or positively dependent.
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
