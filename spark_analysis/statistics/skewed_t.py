"""Student's t held against skewed noise: a test for blocks too few to show a tail.

A heavy tail shows in few blocks or in none, and a sample without it knows nothing of
it: neither flipped signs nor redrawn blocks can tell that the mean of a skewed contrast
is 0. So t is held against what it would be if the noise were lognormal with sigma 1
(skewness 6.2), whatever it looks like. The largest t of a group of contrasts is taken
over noise that is correlated as the group is: its principal components are independent
lognormals. Contrasts with one baseline share most of their noise, so that a group costs
little; groups are adjusted for each other by Bonferroni.

Exact for one contrast with that noise. Where noise is less skewed the test errs less
often than it says; what is more skewed than that remains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.step_down import step_down

DRAWS = 4999
# So many numbers are drawn at a time: memory is bounded by it, and not by rounds.
_AT_A_TIME = 4_000_000
# Of a standard lognormal.
_MEAN = np.float32(math.exp(0.5))
_SPREAD = np.float32(math.sqrt((math.e - 1) * math.e))
# Of the whole: what is smaller is rounding. Differences are logarithms.
_DUST = 1e-12


def skewed_t(
    log_ratios: FloatArray, groups: Sequence[str], seed: int = 0
) -> FloatArray:
    """Return the adjusted p-value of each column of (blocks, contrasts).

    ``groups`` names for each contrast those that it shares noise with. A missing block
    is NaN. 0 for a column with an infinite ratio, 1 with fewer than two blocks. Cost:
    milliseconds for a dozen blocks, a second for hundreds of rounds of many contrasts.
    """
    if len(log_ratios) < 2:
        return np.ones(log_ratios.shape[1])
    testable = ~np.any(np.isinf(log_ratios), axis=0)
    names = np.array(groups)
    adjusted: FloatArray = np.zeros(log_ratios.shape[1])
    for name in dict.fromkeys(groups):
        columns = np.flatnonzero(testable & (names == name))
        if columns.size:
            p = _of_group(log_ratios[:, columns], seed)
            adjusted[columns] = np.minimum(1.0, p * len(set(groups)))
    return adjusted


def _of_group(log_ratios: FloatArray, seed: int) -> FloatArray:
    """Return the p-values of contrasts that share their noise."""
    present = ~np.isnan(log_ratios)
    values = np.nan_to_num(log_ratios, nan=0.0)
    loadings = _loadings(values, present).astype(np.float32)
    generator = np.random.default_rng(seed)
    at_a_time = max(1, _AT_A_TIME // (len(values) * len(loadings)))
    found = [_t(values[None], present)]
    for first in range(0, DRAWS, at_a_time):
        size = (min(at_a_time, DRAWS - first), len(values), loadings.shape[1])
        normal = generator.standard_normal(size=size, dtype=np.float32)
        noise = (np.exp(normal) - _MEAN) / _SPREAD
        found.append(_t(noise @ loadings.T, present))
    return step_down(np.concatenate(found))


def _loadings(values: FloatArray, present: npt.NDArray[np.bool_]) -> FloatArray:
    """Return how much of each principal component is in each contrast.

    Contrasts as rows, of spread 1 but for those without any. Components point to where
    most contrasts do, so that their order and sign are the data's.
    """
    counts = np.maximum(present.sum(axis=0), 1)
    centred = np.where(present, values - values.sum(axis=0) / counts, 0.0)
    spread = np.sqrt(np.sum(centred**2, axis=0))
    centred = np.divide(
        centred, spread, out=np.zeros_like(centred), where=spread > _DUST
    )
    shares, directions = np.linalg.eigh(centred.T @ centred)
    kept = shares > _DUST * len(shares)
    directions = directions[:, kept] * np.where(directions.sum(axis=0)[kept] < 0, -1, 1)
    loadings: FloatArray = directions * np.sqrt(shares[kept])
    return loadings


def _t(values: FloatArray, present: npt.NDArray[np.bool_]) -> FloatArray:
    """Return |mean| over its standard error for (draws, blocks, contrasts).

    A mean without spread is infinite, no mean is 0.
    """
    counts = np.maximum(present.sum(axis=0), 2)
    kept = values if np.all(present) else values * present
    means = kept.sum(axis=1) / counts
    squares = np.einsum("dbc,dbc->dc", kept, kept) / counts
    spread = squares - means**2
    spread = np.where(spread > _DUST * squares, spread, 0.0)
    error = np.sqrt(spread / (counts - 1))
    sizes = np.where(np.abs(means) < _DUST, 0.0, np.abs(means))
    t = np.divide(sizes, error, out=np.full(sizes.shape, math.inf), where=error > 0)
    return np.asarray(np.where(sizes == 0, 0.0, t), dtype=np.float64)
