"""The exact sign-flip test over blocks, with max-T over all contrasts at once.

In a block every arm met the same requests in a random order, so without a difference
the log-ratio of an arm to the baseline is as likely to be d as -d. All 2^R choices of
signs are enumerated; the same signs flip all contrasts of a block together, so that
their dependence (one baseline, one trace) is kept, and the largest statistic over all
contrasts gives p-values that hold for the family (Westfall & Young 1993, step-down).

Each single contrast's test is exact where the two runs of a block could as well have
been each other's. The adjustment adds that the contrasts are jointly symmetric, and a
contrast whose mean is 0 may still be skewed: with a skewed baseline alone the family's
error is 0.08 to 0.15 instead of 0.05. ``difference`` asks other tests, too, for that
reason. A test with few blocks cannot reach a small p whatever the data: ``smallest_p``
says so, and such a test is no evidence of sameness.
"""

from __future__ import annotations

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.step_down import step_down

# Up to 2^14 sign vectors are enumerated, half of them, for the others mirror them; with
# more blocks as many are drawn: a p of 0.05 then has a standard error of 0.0024.
EXACT_BLOCKS_MAX = 14
DRAWS = 2 ** (EXACT_BLOCKS_MAX - 1)
# An infinite log-ratio (one side answered nothing) counts as a factor of e^20.
LOG_RATIO_MAX = 20.0


def smallest_p(blocks: int) -> float:
    """Return the smallest p-value that this number of blocks can give."""
    return min(1.0, 2.0 ** (1 - blocks))


def max_t(log_ratios: FloatArray, seed: int = 0) -> FloatArray:
    """Return the adjusted two-sided p-value of each column of (blocks, contrasts).

    A missing block of a contrast is NaN and counts as no difference. The statistic is
    ``|sum d| / sqrt(sum d^2)``, which orders the flips as the t statistic does and
    exists where all differences are equal.
    """
    blocks, contrasts = log_ratios.shape
    if blocks == 0 or contrasts == 0:
        return np.ones(contrasts)
    flipped = np.nan_to_num(log_ratios, nan=0.0, posinf=np.inf, neginf=-np.inf)
    flipped = np.clip(flipped, -LOG_RATIO_MAX, LOG_RATIO_MAX)
    norms = np.sqrt(np.sum(flipped**2, axis=0))
    scaled = np.divide(flipped, norms, out=np.zeros_like(flipped), where=norms > 0)
    statistics = np.abs(_signs(blocks, seed) @ scaled)
    return step_down(statistics)


def _signs(blocks: int, seed: int) -> FloatArray:
    """Return sign vectors, the observed one (all plus) first.

    Signs and their opposites give the same statistic: half of them suffice.
    """
    if blocks <= EXACT_BLOCKS_MAX:
        codes = np.arange(2 ** (blocks - 1))
        bits = (codes[:, None] >> np.arange(blocks)) & 1
    else:
        generator = np.random.default_rng(seed)
        bits = generator.integers(0, 2, size=(DRAWS, blocks))
        bits[0] = 0
    return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)
