"""Two one-sided tests: when two arms may be called the same.

A difference that was not found is not a difference that is not there. Sameness is
claimed only where both one-sided t tests reject that the mean log-ratio lies outside a
margin named before the experiment (Schuirmann 1987).

A mean may lie beyond the margin by a heavy tail that few blocks do not show: then they
agree with each other, and Student's t calls them the same too often. So t is held
against skewed noise, too, as differences are (``skewed_t``), and the larger p counts.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import stdtr

from spark_analysis.statistics import FloatArray

DRAWS = 4999
# So many numbers are drawn at a time: memory is bounded by it, and not by rounds.
_AT_A_TIME = 4_000_000


def tost(log_ratios: FloatArray, margin: float) -> float:
    """Return the p-value of "the ratio lies outside 1/(1 + margin) .. 1 + margin".

    1 where it cannot be judged: fewer than two blocks, or an infinite ratio. Cost:
    milliseconds for the first of as many blocks.
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
    t = -room / error
    skewed = _skewed_ts(count)
    reached = 1 + int(np.searchsorted(skewed, t, "right"))
    return max(float(stdtr(count - 1, t)), reached / (1 + len(skewed)))


@functools.lru_cache(maxsize=256)
def _skewed_ts(count: int) -> FloatArray:
    """Return t of samples of a standard lognormal about its mean, ascending.

    Its tail is on the right, so t errs to the left: towards the inside of a margin that
    the mean reaches from below. The other margin is its mirror.
    """
    generator = np.random.default_rng(count)
    at_a_time = max(1, _AT_A_TIME // count)
    found = []
    for first in range(0, DRAWS, at_a_time):
        size = (min(at_a_time, DRAWS - first), count)
        noise = generator.lognormal(size=size) - math.exp(0.5)
        error = noise.std(axis=1, ddof=1) / math.sqrt(count)
        found.append(noise.mean(axis=1) / error)
    return np.sort(np.concatenate(found))
