"""The order of arms in one measure: who is shown to be ahead of whom.

All pairs are tested as one family (Holm), by the differences of their incidents, which
may be zero or infinite where ratios are nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import bdtr, stdtr

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.step_down import holm


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The arms by their means, the lowest first, which is the best.

    ``best`` are those that none is shown to be ahead of, in that order; ``ahead`` are
    the pairs of which the first is shown to be ahead of the second.
    """

    arms: tuple[str, ...]
    best: tuple[str, ...]
    ahead: frozenset[tuple[str, str]]


def order_of(values: Mapping[str, Sequence[float]], alpha: float) -> Order:
    """Order arms by their values, one for each block, the same blocks for all."""
    means = {arm: float(np.mean(of)) for arm, of in values.items()}
    arms = sorted(values, key=lambda arm: means[arm])
    pairs = list(combinations(arms, 2))
    found = [_difference(values[one], values[other]) for one, other in pairs]
    adjusted = holm(np.array([paired_p(each) for each in found]))
    ahead = frozenset(
        pair if np.median(each) < 0 else (pair[1], pair[0])
        for pair, each, p in zip(pairs, found, adjusted, strict=True)
        if p <= alpha
    )
    behind = {second for _, second in ahead}
    best = tuple(arm for arm in arms if arm not in behind)
    return Order(arms=tuple(arms), best=best or tuple(arms[:1]), ahead=ahead)


def paired_p(differences: FloatArray) -> float:
    """Return the two-sided p of no difference: Student's t, or the sign test's.

    The latter where some difference is infinite. No difference anywhere is no evidence;
    the same one everywhere is as much as there can be.
    """
    count = len(differences)
    if not np.any(differences):
        return 1.0
    if not np.all(np.isfinite(differences)):
        fewer = min(np.sum(differences > 0), np.sum(differences < 0))
        untied = int(np.sum(differences != 0))
        return min(1.0, 2 * float(bdtr(int(fewer), untied, 0.5)))
    if count < 2:
        return 1.0
    error = float(np.std(differences, ddof=1)) / math.sqrt(count)
    if error == 0:
        return 0.0
    return 2 * float(stdtr(count - 1, -abs(float(np.mean(differences))) / error))


def _difference(one: Sequence[float], other: Sequence[float]) -> FloatArray:
    """Return one minus the other, block by block; two that never ended are even."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(
            np.subtract(one, other, dtype=float), nan=0.0, posinf=np.inf, neginf=-np.inf
        )
