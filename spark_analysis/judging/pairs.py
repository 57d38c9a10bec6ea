"""Arms against each other over all points: which policy wins where.

A pair is asked about in each class and metric at each point. Its questions in one
metric, over classes and points, are one family in which false discoveries are kept to
a share (``statistics.screening`` says why); other pairs and metrics are other
questions. At a single point the verdicts of ``verdict`` hold for all of its cells at
once, and adding points does not change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from spark_analysis.comparison import Comparison
from spark_analysis.contract import Options
from spark_analysis.metrics import Metric
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.equivalence import tost
from spark_analysis.statistics.intervals import Estimate, log_ratio_interval
from spark_analysis.statistics.ratios import factor, log_ratios
from spark_analysis.statistics.screening import coverage_level, discovery_q
from spark_analysis.statistics.sign_flip import max_t, smallest_p

Pair = tuple[str, str]
Winner = Literal["first", "second", "same", "undecided", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCell:
    """One class of one pair in one metric at one point.

    ``ratio`` is first / second; its interval is as wide as the number of entries found
    in the family demands. ``q`` is the share of false discoveries at which this would
    be one. ``why`` says why a cell is refused.
    """

    point: str
    class_name: str
    metric: Metric
    pair: Pair
    ratio: Estimate | None
    q: float
    winner: Winner
    why: str = ""

    @property
    def ahead(self) -> str:
        """The arm that is better, or why none is."""
        places = {"first": self.pair[0], "second": self.pair[1]}
        return places.get(self.winner, self.winner)


@dataclass(frozen=True, slots=True)
class _Asked:
    comparison: Comparison
    class_name: str
    logs: FloatArray
    why: str


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
    told = [one for one in asked if not one.why]
    if not told:
        return [_refused(one, pair, metric) for one in asked]
    options = told[0].comparison.manifest.options
    q = discovery_q([_p(one) for one in told])
    same = discovery_q([tost(one.logs, metric.margin) for one in told])
    level = coverage_level(list(q), options.alpha)
    found = iter(zip(q, same, strict=True))
    return [
        _refused(one, pair, metric)
        if one.why
        else _judged(one, pair, metric, level, *next(found))
        for one in asked
    ]


def _refused(asked: _Asked, pair: Pair, metric: Metric) -> PairCell:
    return PairCell(
        point=asked.comparison.manifest.point.name,
        class_name=asked.class_name,
        metric=metric,
        pair=pair,
        ratio=None,
        q=1.0,
        winner="refused",
        why=asked.why,
    )


def _judged(
    asked: _Asked, pair: Pair, metric: Metric, level: float, q: float, q_same: float
) -> PairCell:
    options = asked.comparison.manifest.options
    picked = q < options.alpha
    log = log_ratio_interval(asked.logs, level if picked else options.confidence)
    return PairCell(
        point=asked.comparison.manifest.point.name,
        class_name=asked.class_name,
        metric=metric,
        pair=pair,
        ratio=Estimate(*(factor(end) for end in log)),
        q=float(q),
        winner=_winner(log, len(asked.logs), q, q_same, metric, options),
    )


def _p(asked: _Asked) -> float:
    """Return the exact sign-flip p-value of one pair at one point."""
    return float(max_t(asked.logs[:, None], asked.comparison.manifest.seed)[0])


def _ask(comparison: Comparison, class_name: str, pair: Pair, metric: Metric) -> _Asked:
    values: dict[str, dict[int, float]] = {arm: {} for arm in pair}
    for run in comparison.run_values:
        if run.class_name == class_name and run.arm in values:
            values[run.arm][run.block] = run.values[metric.name]
    first, second = (values[arm] for arm in pair)
    logs = log_ratios(first, second, sorted(first))
    return _Asked(
        comparison, class_name, logs, _why(comparison, class_name, pair, metric)
    )


def _why(comparison: Comparison, class_name: str, pair: Pair, metric: Metric) -> str:
    """Return why a pair may not be told: a thin tail, or no answers on either side.

    Where one side answers and the other does not, the winner is known.
    """
    cells = [comparison.cell(class_name, arm, metric.name) for arm in pair]
    lost = [bool(np.isinf(cell.measured.estimate.value)) for cell in cells]
    for arm, of_arm in zip(pair, lost, strict=True):
        why = comparison.gate(class_name, arm, metric)
        if why and (not of_arm or all(lost)):
            return f"under {arm} {why}"
    return ""


def _winner(
    log: Estimate,
    blocks: int,
    q: float,
    q_same: float,
    metric: Metric,
    options: Options,
) -> Winner:
    if smallest_p(blocks) > options.alpha:
        return "undecided"
    if q_same < options.alpha:
        return "same"
    if q >= options.alpha or log.low <= 0 <= log.high:
        return "undecided"
    return "first" if (log.high < 0) == metric.lower_is_better else "second"
