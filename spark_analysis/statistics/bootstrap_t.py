"""The studentised bootstrap over blocks: a test of means that assumes no symmetry.

Blocks are drawn again with replacement, the same ones for all contrasts, and each mean
is held against its own standard error (Hall 1992). It is asymptotic where the sign-flip
test is exact, and nearer to its level than that one where differences are skewed about
a mean of 0.

A contrast that is exactly 0 in most blocks has no spread in resamples without the few
others, and so, in up to two of five resamples, a statistic without bound. In a family
with such contrasts it would be the largest, and leave nothing decided. So they are a
family of their own, and two families are adjusted for each other by Bonferroni.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.bootstrap import block_weights
from spark_analysis.statistics.step_down import step_down

RESAMPLES = 4999
# Logarithms nearer to zero than this differ from it by rounding alone.
DUST = 1e-12


def bootstrap_t(log_ratios: FloatArray, seed: int = 0) -> FloatArray:
    """Return the adjusted p-value of each column of (blocks, contrasts).

    A missing block is NaN. 0 for a column with an infinite ratio, which has no mean to
    be tested. 1 with fewer than two blocks.
    """
    blocks, contrasts = log_ratios.shape
    if blocks < 2:
        return np.ones(contrasts)
    adjusted: FloatArray = np.zeros(contrasts)
    testable = ~np.any(np.isinf(log_ratios), axis=0)
    if np.any(testable):
        adjusted[testable] = _adjusted(log_ratios[:, testable], seed)
    return adjusted


def _adjusted(log_ratios: FloatArray, seed: int) -> FloatArray:
    present = ~np.isnan(log_ratios)
    values = np.nan_to_num(log_ratios, nan=0.0)
    ones = np.ones((1, len(values)))
    counts = present.sum(axis=0)
    means = _without_dust(values.sum(axis=0) / np.maximum(counts, 1))
    centred = _without_dust(np.where(present, values - means, 0.0))
    observed = _t(means[None, :], ones, centred, present)
    weights = _weights(len(values), seed)
    drawn = np.maximum(weights @ present, 1)
    resampled = _t((weights @ centred) / drawn, weights, centred, present)
    statistics = np.vstack([observed, resampled])
    families = [mine for mine in _families(centred, means, present) if np.any(mine)]
    adjusted: FloatArray = np.ones(len(counts))
    for mine in families:
        p = step_down(statistics[:, mine])
        adjusted[mine] = np.minimum(1.0, p * len(families))
    return adjusted


def _families(
    centred: FloatArray, means: FloatArray, present: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which contrasts differ in most blocks, or in none, and which in a few."""
    differing = (present & (np.abs(centred + means) >= DUST)).sum(axis=0)
    few = (differing > 0) & (2 * differing < present.sum(axis=0))
    return ~few, few


def _t(
    means: FloatArray,
    weights: FloatArray,
    centred: FloatArray,
    present: npt.NDArray[np.bool_],
) -> FloatArray:
    """Return |mean| over its standard error; a mean without spread is infinite."""
    counts = weights @ present
    size = np.maximum(counts, 2)
    middle = (weights @ centred) / size
    spread = (weights @ centred**2) / size - middle**2
    # A resample of equal values has rounding, and no spread.
    scale = np.max(np.abs(centred), axis=0, initial=0.0) ** 2
    spread = np.where(spread > 1e-12 * scale, spread, 0.0)
    error = np.sqrt(spread / (size - 1))
    sizes = np.abs(means)
    t = np.divide(sizes, error, out=np.full(sizes.shape, math.inf), where=error > 0)
    return np.asarray(np.where((counts < 2) | (sizes == 0), 0.0, t), dtype=np.float64)


def _without_dust(logs: FloatArray) -> FloatArray:
    """Return logs with zero for what only rounding tells from it."""
    return np.where(np.abs(logs) < DUST, 0.0, logs)


@functools.lru_cache(maxsize=4)
def _weights(blocks: int, seed: int) -> FloatArray:
    return block_weights(blocks, RESAMPLES, seed).astype(np.float64)
