"""Quantiles of episodes: pooled over rounds, and what each round adds to them.

An episode has so few requests that its own p99 is its maximum. So nothing is said of an
episode's quantile: the quantile of an arm is that of all its requests in all rounds,
and the round stays the unit of inference by *linearisation*. A round in which more
requests lie beyond the pooled quantile than in others pulls it up; by how much is the
round's excess count times the slope of the log-quantile, which is read off Woodruff's
interval (Woodruff 1952; standard errors from it: Francisco & Fuller 1991; Rao, Kovar &
Mantel 1990). The round's *value* is the pooled quantile moved by that much.

Hence the geometric mean of an arm's values is its pooled quantile, exactly; the mean
log-ratio of two arms' values is the log of the ratio of their pooled quantiles; and the
spread of the paired log-ratios over rounds gives the error of that ratio, because both
arms of a round met the same requests. All tests over blocks take these values as they
take the quantiles of long runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.intervals import (
    mean_interval,
    share_error,
    share_residuals,
    student_t,
    value_at,
)
from spark_analysis.statistics.quantiles import nearest_rank

# Woodruff's interval at this level gives the slope: near enough to be one slope, far
# enough to rest on more than a few requests.
_SLOPE_CONFIDENCE = 0.9


def round_values(
    rounds: Sequence[FloatArray], pooled: FloatArray, level: Fraction
) -> FloatArray:
    """Return a value for each round whose geometric mean is the pooled quantile.

    ``rounds`` are ascending latencies above 0, and so is ``pooled``, which holds all of
    them. Where the pooled quantile is infinite (too many requests got no answer) the
    rounds that lost as large a share have the value infinity, and the others none, NaN:
    they do not say how much later an answer would have come. Cost: O(rounds x log n).
    """
    value = nearest_rank(pooled, level)
    if math.isinf(value):
        own = [nearest_rank(each, level) for each in rounds]
        return np.array([math.inf if math.isinf(each) else math.nan for each in own])
    if len(rounds) < 2:
        return np.full(len(rounds), value)
    side = _side(rounds, value)
    slope = _slope(rounds, pooled, level, value, side)
    excess = -share_residuals(rounds, value, side) * len(rounds) / len(pooled)
    moved: FloatArray = value * np.exp(slope * excess)
    return moved


def _side(rounds: Sequence[FloatArray], value: float) -> Literal["left", "right"]:
    """Return which share varies more over rounds: that below, or that up to a value.

    Where many requests are equal to a quantile (one backlog that ended for all of them
    at once) the share up to it may be all, everywhere, and know nothing of them.
    """
    below, up_to = (share_error(rounds, value, side) for side in ("left", "right"))
    return "left" if below > up_to else "right"


def _slope(
    rounds: Sequence[FloatArray],
    pooled: FloatArray,
    level: Fraction,
    value: float,
    side: Literal["left", "right"],
) -> float:
    """Return by how much the log-quantile rises with the share, at the level."""
    error = share_error(rounds, value, side)
    if error == 0.0:
        return 0.0
    reach = student_t(_SLOPE_CONFIDENCE, len(rounds) - 1) * error
    lower = max(float(level) - reach, 1 / len(pooled))
    upper = min(float(level) + reach, 1.0)
    finite = pooled[: int(np.searchsorted(pooled, math.inf))]
    high = min(value_at(pooled, upper), float(finite[-1]))
    return (math.log(high) - math.log(value_at(pooled, lower))) / (upper - lower)


def half_width(
    arm: Sequence[FloatArray],
    baseline: Sequence[FloatArray],
    level: Fraction,
    confidence: float,
) -> float:
    """Return half the length of the interval of log(arm / baseline) at a quantile.

    Paired rounds, each an array of latencies in any order. Infinite where there is none
    yet: fewer than two rounds, or requests without an answer at the quantile. Depends
    on how far apart the arms are only through their spread. Cost: milliseconds.
    """
    if len(arm) < 2:
        return math.inf
    logs = np.log(_values(arm, level)) - np.log(_values(baseline, level))
    if not np.all(np.isfinite(logs)):
        return math.inf
    found = mean_interval(logs, confidence)
    return (found.high - found.low) / 2


def _values(rounds: Sequence[FloatArray], level: Fraction) -> FloatArray:
    ascending = [np.sort(each) for each in rounds]
    return round_values(ascending, np.sort(np.concatenate(ascending)), level)
