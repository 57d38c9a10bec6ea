"""Arms against each other over all points: which policy wins where.

A pair is asked about in each class and metric at each point. Its questions in one
metric, over classes and points, are one family in which false discoveries are kept to
a share (``statistics.screening`` says why); other pairs and metrics are other
questions. At a single point the verdicts of ``verdict`` hold for all of its cells at
once, and adding points does not change them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.decision import decide
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.run_values import Key, paired_logs
from spark_analysis.judging.verdict import why_not_compared
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.difference import difference_p
from spark_analysis.statistics.intervals import (
    Estimate,
    log_ratio_interval,
    picked_interval,
)
from spark_analysis.statistics.paired import tost
from spark_analysis.statistics.ratios import ratio_of
from spark_analysis.statistics.screening import coverage_level, discovery_q

Winner = Literal["first", "second", "same", "undecided", "refused"]


class Pair(NamedTuple):
    """Two arms to be compared with each other."""

    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCell:
    """One class of one pair in one metric at one point.

    ``ratio`` is first / second; its interval is as wide as the number of entries found
    in the family demands. ``at_once`` is the ratio with an interval that holds for
    all points of the class at once: for a cell that is picked for its size. ``q`` is
    the share of false discoveries at which this would be one. ``why`` says why a cell
    is refused, which has no ratio.
    """

    point: str
    class_name: str
    metric: Metric
    pair: Pair
    ratio: Estimate | None
    at_once: Estimate | None
    q: float
    winner: Winner
    why: str = ""

    @property
    def ahead(self) -> str:
        """The arm that is better, or why none is."""
        if self.winner == "first":
            return self.pair.first
        return self.pair.second if self.winner == "second" else self.winner


@dataclass(frozen=True, slots=True)
class _Asked:
    comparison: Comparison
    class_name: str
    logs: FloatArray
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the family says of one entry; ``points`` are those shown of its class."""

    q: float
    q_same: float
    coverage: float
    points: int


def pair_cells(
    comparisons: Sequence[Comparison], pairs: Sequence[Pair], metrics: Sequence[Metric]
) -> tuple[PairCell, ...]:
    """Return every pair in every metric, class and point, in that order."""
    return tuple(
        cell
        for pair in pairs
        for metric in metrics
        for cell in _family(comparisons, pair, metric)
    )


def _family(
    comparisons: Sequence[Comparison], pair: Pair, metric: Metric
) -> list[PairCell]:
    asked = [
        _ask(comparison, name, pair, metric)
        for comparison in comparisons
        if set(pair) <= set(comparison.arm_names)
        for name in comparison.class_names
    ]
    shown = [one for one in asked if not one.why]
    if not shown:
        return [_refused(one, pair, metric) for one in asked]
    options = shown[0].comparison.manifest.options
    q = discovery_q([_p(one) for one in shown])
    same = discovery_q([tost(one.logs, metric.margin) for one in shown])
    coverage = coverage_level(list(q), options.alpha)
    points = Counter(one.class_name for one in shown)
    found = iter(
        _Found(q=a, q_same=b, coverage=coverage, points=points[one.class_name])
        for one, a, b in zip(shown, q.tolist(), same.tolist(), strict=True)
    )
    return [
        _refused(one, pair, metric)
        if one.why
        else _judged(one, pair, metric, next(found))
        for one in asked
    ]


def _refused(asked: _Asked, pair: Pair, metric: Metric) -> PairCell:
    return PairCell(
        point=asked.comparison.manifest.point.name,
        class_name=asked.class_name,
        metric=metric,
        pair=pair,
        ratio=None,
        at_once=None,
        q=1.0,
        winner="refused",
        why=asked.why,
    )


def _judged(asked: _Asked, pair: Pair, metric: Metric, found: _Found) -> PairCell:
    options = asked.comparison.manifest.options
    level = found.coverage if found.q < options.alpha else options.confidence
    ratio = ratio_of(log_ratio_interval(asked.logs, level))
    decision = decide(
        ratio,
        blocks=len(asked.logs),
        p=found.q,
        p_same=found.q_same,
        alpha=options.alpha,
    )
    winner: Winner
    if decision in ("lower", "higher"):
        ahead = (decision == "lower") == metric.lower_is_better
        winner = "first" if ahead else "second"
    else:
        winner = "same" if decision == "same" else "undecided"
    return PairCell(
        point=asked.comparison.manifest.point.name,
        class_name=asked.class_name,
        metric=metric,
        pair=pair,
        ratio=ratio,
        at_once=ratio_of(picked_interval(asked.logs, options.alpha, found.points)),
        q=found.q,
        winner=winner,
    )


def _p(asked: _Asked) -> float:
    """Return the p-value of one pair at one point."""
    seed = asked.comparison.manifest.seed
    return float(difference_p(asked.logs[:, None], [asked.class_name], seed)[0])


def _ask(comparison: Comparison, class_name: str, pair: Pair, metric: Metric) -> _Asked:
    key = Key(class_name, pair.first)
    return _Asked(
        comparison,
        class_name,
        paired_logs(comparison.run_values, key, pair.second, metric.name),
        _why(comparison, class_name, pair, metric),
    )


def _why(comparison: Comparison, class_name: str, pair: Pair, metric: Metric) -> str:
    """Return why a pair is not compared, or an empty string."""
    cells = [comparison.cell(class_name, arm, metric.name) for arm in pair]
    return why_not_compared(metric, *(cell.measured for cell in cells))
