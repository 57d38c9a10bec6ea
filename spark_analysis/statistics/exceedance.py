"""Effective exceedances: the weight of a tail, and the gate that it must pass.

A p99 rests on the 1 % of requests beyond it. If these come in clusters (one backlog
delays five hundred neighbours) they have the weight of fewer independent ones. The
variance of their share is inflated by a factor VIF, and N (1 - p) / VIF is the number
of *effective* exceedances (Kish, *Survey Sampling*, 1965). With one cluster per session
that is about the number of sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np


class Tail(NamedTuple):
    """The tail beyond a quantile: its requests, their clustering, their weight."""

    exceedances: int
    vif: float
    effective: float


def tail_of_sessions(
    counts: Sequence[int], exceedances: Sequence[int], level: Fraction
) -> Tail:
    """Return the tail beyond a pooled quantile, with its weight.

    ``exceedances`` are the requests of each session at or beyond the quantile. The
    variance of their share is taken between sessions, which are independent, as a ratio
    estimate. A tail in a single session has the weight of one exceedance.
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
