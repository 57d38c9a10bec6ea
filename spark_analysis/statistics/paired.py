"""Tests of one contrast over paired sessions, and their values.

The session is the unit of replication: all its rounds share the effects of its
processes. A contrast is one log-ratio per session, of two arms with the same requests.

Student's paired t tests its mean and gives the interval. The sign-flip test is exact if
the processes of a session are exchangeable (Fisher 1935): a log-ratio d is then as
likely as -d. The p-value of a contrast is the larger of the two. A difference therefore
never has an interval that includes 1. The level is at most that of the test whose
assumption holds, and no p-value is smaller than the number of sessions allows.

If a session has too few requests for the quantile, its values come from the jackknife
(Tukey 1958). Let ``theta`` be the log-ratio of the quantiles pooled over all ``n``
sessions, and ``theta_i`` the same without session i. The value of session i is
``theta + (n - 1) (mean theta_j - theta_i)``. Their mean is ``theta``. Tukey's
pseudo-values are these plus an estimate of bias, which for a quantile is mostly noise
and multiplies the errors of the tests. Deleting one request at a time fails for
quantiles; deleting a session, a fixed share of all requests, does not (Shao and Wu
1989).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.special import stdtr

from spark_analysis.statistics import FloatArray

# Up to 2^19 sign vectors are enumerated; for more sessions as many are drawn.
EXACT_SESSIONS_MAX: Final = 20
DRAWS: Final = 2**16
# Smaller logarithms differ from zero by rounding only.
_ROUNDING: Final = 1e-12
# An infinite log-ratio (one arm answered nothing) counts as a factor of e^20.
LOG_RATIO_MAX: Final = 20.0


def paired_p(log_ratios: FloatArray, seed: int = 0) -> float:
    """Return the p-value of one contrast: the larger of sign-flip and paired t.

    With an infinite log-ratio there is no mean to test, and the sign-flip test decides.
    1 with fewer than two sessions. Cost: at most 2^19 sums.
    """
    if len(log_ratios) < 2:
        return 1.0
    flipped = sign_flip_p(log_ratios, seed)
    if not np.all(np.isfinite(log_ratios)):
        return flipped
    return max(flipped, t_p(log_ratios))


def smallest_p(sessions: int, contrasts: int = 1) -> float:
    """Return the smallest p-value of these sessions, adjusted by Holm's rule.

    In a family of ``contrasts`` the smallest p-value is multiplied by their number, and
    no other falls below it.
    """
    if sessions < 2:
        return 1.0
    smallest = 2.0 ** (1 - sessions)
    if sessions > EXACT_SESSIONS_MAX:
        smallest = 1 / (DRAWS + 1)
    return min(1.0, contrasts * smallest)


def sign_flip_p(log_ratios: FloatArray, seed: int = 0) -> float:
    """Return the two-sided p-value of the sign-flip test of a mean of 0.

    The statistic is the absolute sum, which orders the flips as t does. All signs are
    enumerated up to `EXACT_SESSIONS_MAX` sessions. Beyond that they are drawn, and the
    observed signs count among the draws (Phipson and Smyth 2010).
    """
    values = np.clip(log_ratios, -LOG_RATIO_MAX, LOG_RATIO_MAX)
    reached = abs(float(np.sum(values))) - _ROUNDING * float(np.sum(np.abs(values)))
    if len(values) <= EXACT_SESSIONS_MAX:
        sums = np.abs(_sums_of_flips(values))
        return float(np.count_nonzero(sums >= reached)) / len(sums)
    signs = np.random.default_rng(seed).integers(0, 2, (DRAWS, len(values)), np.int8)
    sums = np.abs((1.0 - 2.0 * signs) @ values)
    return (1 + float(np.count_nonzero(sums >= reached))) / (DRAWS + 1)


def _sums_of_flips(values: FloatArray) -> FloatArray:
    """Return the sums under all signs of all values but the first.

    A sign vector and its opposite have the same absolute sum, so half of them suffice.
    """
    sums = np.array(values[:1])
    for value in values[1:]:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def t_p(log_ratios: FloatArray) -> float:
    """Return the two-sided p-value of Student's t for a mean of 0.

    0 for equal values other than 0, 1 for values of 0.
    """
    count, mean = len(log_ratios), float(np.mean(log_ratios))
    if np.max(np.abs(log_ratios)) < _ROUNDING:
        return 1.0
    error = float(np.std(log_ratios, ddof=1)) / math.sqrt(count)
    if error <= _ROUNDING * abs(mean):
        return 0.0
    return 2 * float(stdtr(count - 1, -abs(mean) / error))


def jackknife_values(pooled: float, without: FloatArray) -> FloatArray:
    """Return each session's value of a statistic that is pooled over all sessions.

    ``without`` is the statistic without each session. The mean is ``pooled``.
    """
    shifts = (len(without) - 1) * (np.mean(without) - without)
    return np.asarray(pooled + shifts, dtype=np.float64)


def tost(log_ratios: FloatArray, margin: float) -> float:
    """Return the p-value of "the ratio lies outside 1 / (1 + margin) .. 1 + margin".

    The larger p-value of two one-sided t tests (Schuirmann 1987). 1 with fewer than two
    sessions, or an infinite log-ratio.
    """
    count = len(log_ratios)
    if count < 2 or not np.all(np.isfinite(log_ratios)):
        return 1.0
    room = math.log1p(margin) - abs(float(np.mean(log_ratios)))
    error = float(np.std(log_ratios, ddof=1)) / math.sqrt(count)
    if error == 0.0:
        return 0.0 if room > 0 else 1.0
    return float(stdtr(count - 1, -room / error))
