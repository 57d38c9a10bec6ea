"""How much a tail really weighs: effective exceedances, and the gate they must pass.

A p99 rests on the 1 % of requests beyond it. If those come in clusters (one backlog
delays five hundred neighbours) they weigh like so many fewer independent ones: the
variance of their share is inflated by a factor VIF, and N (1 - p) / VIF is the number
of *effective* exceedances. Below a configured number a cell is refused instead of
printed.

The VIF is estimated *within* runs, by the means of consecutive batches about their own
run's mean. Differences between runs (another process, another page cache) are left out
on purpose: the intervals over runs already carry them, and counting them here as well
would refuse a tail for the very noise that its interval states. Ten batches a run:
long enough to hold a whole backlog, many enough over all runs for a stable variance.
In the limit of one cluster a run, N (1 - p) / VIF is about the number of runs, as it
should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from spark_analysis.statistics import FloatArray

BATCHES = 10


class Tail(NamedTuple):
    """What lies beyond a quantile: requests there, their clustering, their weight."""

    exceedances: int
    vif: float
    effective: float


def variance_inflation(runs: Sequence[FloatArray], threshold: float) -> float:
    """Return the variance of the share above ``threshold``, relative to independence.

    Each run holds one value per request in order of arrival. At least 1: negative
    dependence earns no credit.
    """
    beyond = sum(int(np.count_nonzero(run > threshold)) for run in runs)
    share = beyond / sum(len(run) for run in runs)
    if share in (0.0, 1.0):
        return 1.0
    squares, degrees = 0.0, 0
    for run in runs:
        size = len(run) // BATCHES
        if size == 0:
            continue
        means = (run[: size * BATCHES] > threshold).reshape(BATCHES, size).mean(axis=1)
        squares += size * float(np.sum((means - means.mean()) ** 2))
        degrees += BATCHES - 1
    if degrees == 0:
        return 1.0
    return max(1.0, squares / degrees / (share * (1 - share)))


def tail(runs: Sequence[FloatArray], level: Fraction, threshold: float) -> Tail:
    """Weigh the tail beyond the pooled quantile ``threshold`` of runs in arrival order.

    The exceedances are the nominal N (1 - p), not those counted: with many equal values
    at the quantile (an idle server in virtual time) fewer lie strictly above it. Those
    equal to it may be one cluster themselves (a timeout that hit a whole backlog), so
    the larger inflation counts, of the values above it and of those from it on.
    """
    count = sum(len(run) for run in runs)
    beyond = count - (count * level.numerator // level.denominator)
    vif = max(
        variance_inflation(runs, threshold),
        variance_inflation(runs, float(np.nextafter(threshold, -np.inf))),
    )
    return Tail(beyond, vif, beyond / vif)


def tail_of_sessions(
    counts: Sequence[int], exceedances: Sequence[int], level: Fraction
) -> Tail:
    """Weigh the tail beyond a pooled quantile by how it is spread over sessions.

    ``exceedances`` are the requests of each session at or beyond the quantile. The
    variance of their share is taken between sessions, which are independent, as a ratio
    estimate. A tail that one session alone holds has the weight of one exceedance.
    """
    count = sum(counts)
    beyond = count - (count * level.numerator // level.denominator)
    share = sum(exceedances) / count
    if len(counts) < 2 or not 0 < share < 1:
        return Tail(beyond, 1.0, float(beyond))
    residuals = np.asarray(exceedances) - share * np.asarray(counts)
    squares = len(counts) / (len(counts) - 1) * float(residuals @ residuals)
    vif = max(1.0, squares / (count * share * (1 - share)))
    return Tail(beyond, vif, beyond / vif)
