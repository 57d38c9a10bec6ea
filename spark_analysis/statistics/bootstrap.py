"""The bootstrap over blocks: resample whole blocks, the same ones for every arm.

A second opinion beside the t interval of ``intervals``: it estimates the ratio of
*pooled* quantiles, which is not biased low when a run is too short for its own p99.9,
but with few blocks its percentile interval covers less than it promises. Requests are
never resampled: that would pretend they were independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.intervals import Estimate

Weights = npt.NDArray[np.int64]


def block_weights(blocks: int, resamples: int, seed: int) -> Weights:
    """Return how often each resample draws each block, shape (resamples, blocks).

    The same arguments give the same weights wherever they are drawn, so that arms
    handled by different Spark tasks stay paired.
    """
    share = np.full(blocks, 1.0 / blocks)
    return np.random.default_rng(seed).multinomial(blocks, share, size=resamples)


def resampled_quantiles(
    runs: Sequence[FloatArray], level: Fraction, weights: Weights
) -> FloatArray:
    """Return the exact pooled quantile of every resample of ascending runs.

    A pooled quantile lies between the smallest and the largest of its runs' own
    quantiles, so only values in between are candidates, and a binary search over them
    finds it for all resamples at once. Cost: O(resamples x runs x log n) after sorting.
    """
    sizes = np.array([len(run) for run in runs], dtype=np.int64)
    needed = -(-(weights @ sizes) * level.numerator // level.denominator)
    ranks = -(-sizes * level.numerator // level.denominator)
    own = [run[max(r, 1) - 1] for run, r in zip(runs, ranks, strict=True)]
    pooled = np.concatenate(runs)
    candidates = np.unique(pooled[(pooled >= min(own)) & (pooled <= max(own))])
    below = np.stack([np.searchsorted(run, candidates, "right") for run in runs])
    low = np.zeros(len(weights), dtype=np.int64)
    high = np.full(len(weights), len(candidates) - 1)
    while np.any(low < high):
        middle = (low + high) // 2
        enough = np.sum(weights * below[:, middle].T, axis=1) >= needed
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle + 1)
    return np.asarray(candidates[low], dtype=np.float64)


def ratio_interval(
    arm: FloatArray, baseline: FloatArray, confidence: float
) -> Estimate | None:
    """Return the percentile interval of the ratio of two resampled quantiles.

    The arrays must come from the same weights. None where any resample is infinite.
    """
    if not (np.all(np.isfinite(arm)) and np.all(np.isfinite(baseline))):
        return None
    ratios = np.sort(arm / baseline)
    tail = (1 - confidence) / 2
    low, middle, high = np.quantile(
        ratios, [tail, 0.5, 1 - tail], method="inverted_cdf"
    )
    return Estimate(float(middle), float(low), float(high))
