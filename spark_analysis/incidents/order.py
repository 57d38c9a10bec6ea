"""The order of arms in one measure: who is shown to be ahead of whom.

All pairs are tested as one family, as arms are elsewhere (``statistics.difference``),
but by the differences of their incidents, which may be zero where ratios are nothing.
Where some difference is infinite, for one of the two never ended, signs alone decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.difference import difference_p


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The arms by their means, the lowest first, which is the best.

    ``best`` are those that none is shown to be ahead of, in that order; ``ahead`` are
    the pairs of which the first is shown to be ahead of the second.
    """

    arms: tuple[str, ...]
    best: tuple[str, ...]
    ahead: frozenset[tuple[str, str]]


def order_of(
    values: Mapping[str, Sequence[float]], alpha: float, seed: int = 0
) -> Order:
    """Order arms by their values, one for each block, the same blocks for all."""
    means = {arm: float(np.mean(of)) for arm, of in values.items()}
    arms = sorted(values, key=lambda arm: means[arm])
    pairs = list(combinations(arms, 2))
    found = [_difference(values[one], values[other]) for one, other in pairs]
    ahead = frozenset(
        pair if np.median(each) < 0 else (pair[1], pair[0])
        for pair, each, p in zip(pairs, found, _p(found, seed), strict=True)
        if p < alpha
    )
    behind = {second for _, second in ahead}
    best = tuple(arm for arm in arms if arm not in behind)
    return Order(arms=tuple(arms), best=best or tuple(arms[:1]), ahead=ahead)


def _p(differences: Sequence[FloatArray], seed: int) -> FloatArray:
    """Return the p of no difference for each of them, adjusted for all."""
    if not differences:
        return np.ones(0)
    table = np.array([_in_units_of_itself(each) for each in differences]).T
    return difference_p(table, ["incident"] * len(differences), seed)


def _in_units_of_itself(differences: FloatArray) -> FloatArray:
    """Return differences with 1 for the largest, or as infinite if some one is.

    Tests are made for logarithms: what is beyond a bound is cut off there, and dust is
    nothing. What they find does not depend on the unit.
    """
    largest = float(np.max(np.abs(differences)))
    if math.isinf(largest):
        return np.where(differences == 0, 0.0, np.copysign(math.inf, differences))
    return differences / largest if largest else differences


def _difference(one: Sequence[float], other: Sequence[float]) -> FloatArray:
    """Return one minus the other, block by block; two that never ended are even."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(
            np.subtract(one, other, dtype=float), nan=0.0, posinf=np.inf, neginf=-np.inf
        )
