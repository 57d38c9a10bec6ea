"""Two-level factorial effects, and the shares of factors in a whole effect.

With k treatment factors there are 2^k arms. The response of an arm in a session is the
logarithm of its value, so effects are differences of logs and read as ratios. A *line*
of a design is a fixed weighting of the 2^k responses. It is computed in each session,
so the session stays the unit and the pairing is kept.

- Main effects and interactions are those of Yates (Box, Hunter & Hunter, *Statistics
  for Experimenters*; for tail latency: Treadmill, ISCA 2016). A main effect is the mean
  change over all settings of the other factors. For factors that work only in
  combination, it averages an existing effect with a missing one.
- Hence further lines: *alone* (added to no factor), *last* (added to all others), and
  the Shapley *share*, the mean addition of a factor over all orders of adding factors.
  Shares sum to the whole effect, treat factors alike, and give 0 to a factor without
  effect; no other line does all three (Shapley 1953; for decomposing a statistic by its
  causes: Shorrocks, J. Econ. Inequality 11, 2013).

The share of a line in the whole is a ratio of two means over the same sessions. Its
interval is Fieller's, which is unbounded if the whole is not significant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.intervals import Estimate, student_t

Kind = Literal["effect", "alone", "last", "share", "whole"]
# Factors that are not at their reference level.
Combination = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A weighting of the responses to all combinations; the weights sum to zero."""

    kind: Kind
    factors: tuple[str, ...]
    weights: Mapping[Combination, float] = field(hash=False)


def combinations_of(factors: Sequence[str]) -> tuple[Combination, ...]:
    """Return all subsets, the empty one first, smaller ones before larger ones."""
    return tuple(
        frozenset(chosen)
        for size in range(len(factors) + 1)
        for chosen in combinations(factors, size)
    )


def lines(factors: Sequence[str]) -> tuple[Line, ...]:
    """Return every line of a design: 2^k - 1 effects, and 3 k + 1 others."""
    subsets = combinations_of(factors)
    none, full = subsets[0], subsets[-1]
    found = [_effect(chosen, subsets, factors) for chosen in subsets[1:]]
    for name in factors:
        one = frozenset({name})
        found += [
            _difference("alone", (name,), one, none),
            _difference("last", (name,), full, full - one),
            _share(name, subsets, len(factors)),
        ]
    return (*found, _difference("whole", tuple(factors), full, none))


def _effect(
    chosen: Combination, subsets: Sequence[Combination], factors: Sequence[str]
) -> Line:
    """Return a main effect or interaction: one half of the arms against the other."""
    half = len(subsets) / 2
    return Line(
        kind="effect",
        factors=tuple(name for name in factors if name in chosen),
        weights={subset: (-1) ** len(chosen - subset) / half for subset in subsets},
    )


def _difference(
    kind: Kind, factors: tuple[str, ...], upper: Combination, lower: Combination
) -> Line:
    return Line(kind=kind, factors=factors, weights={upper: 1.0, lower: -1.0})


def _share(name: str, subsets: Sequence[Combination], count: int) -> Line:
    """Return the mean addition of a factor, over all orders of adding factors."""
    weights = dict.fromkeys(subsets, 0.0)
    for subset in subsets:
        if name not in subset:
            before = len(subset)
            orders = math.factorial(before) * math.factorial(count - before - 1)
            weight = orders / math.factorial(count)
            weights[subset | {name}] += weight
            weights[subset] -= weight
    return Line(kind="share", factors=(name,), weights=weights)


def by_session(line: Line, responses: Mapping[Combination, FloatArray]) -> FloatArray:
    """Return a line's value in each session; the responses are finite."""
    subsets = list(line.weights)
    table = np.array([responses[subset] for subset in subsets])
    return np.asarray(np.array([line.weights[subset] for subset in subsets]) @ table)


def part_of_whole(part: FloatArray, whole: FloatArray, confidence: float) -> Estimate:
    """Return mean(part) / mean(whole) over sessions with Fieller's interval.

    Unbounded if the whole is not significantly different from zero, because then any
    part may be any share of it.
    """
    sessions = len(part)
    top, bottom = float(np.mean(part)), float(np.mean(whole))
    value = top / bottom if bottom else math.nan
    if sessions < 2:
        return Estimate(value, -math.inf, math.inf)
    (v11, v12), (_, v22) = np.cov(part, whole) / sessions
    t2 = student_t(confidence, sessions - 1) ** 2
    # The share x is not contradicted if (top - x bottom)^2 <= t2 var(part - x whole).
    a, b, c = bottom**2 - t2 * v22, top * bottom - t2 * v12, top**2 - t2 * v11
    if a <= 0:
        return Estimate(value, -math.inf, math.inf)
    root = math.sqrt(max(0.0, b * b - a * c))
    return Estimate(value, (b - root) / a, (b + root) / a)
