"""Arms against each other at all points: configured pairs, and maps of a sweep.

A pair is one contrast in each class and metric at each point. In a sweep the points of
one class are a family, adjusted to a false discovery rate, because a map tests one
question many times. At a single point the configured pairs of a class are a family
under Holm's rule (``statistics.multiplicity``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.cells import CellKey, verdict_of, why_refused
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.contrast import Contrast, adjust, contrast_of
from spark_analysis.judging.metrics import Metric
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.multiplicity import discovery_q, holm

Winner = Literal["first", "second", "same", "undecided", "refused"]


class Pair(NamedTuple):
    """Two arms to compare with each other."""

    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCell:
    """One class of one pair in one metric at one point.

    ``ratio`` is first / second with its 95 % interval. ``p`` is adjusted over its
    family; None in a deterministic world and for a refused pair, whose reason is
    ``why``.
    """

    point: str
    class_name: str
    metric: Metric
    pair: Pair
    ratio: Estimate | None
    p: float | None
    winner: Winner
    why: str = ""

    @property
    def ahead(self) -> str:
        """The better arm, or the reason why there is none."""
        if self.winner == "first":
            return self.pair.first
        return self.pair.second if self.winner == "second" else self.winner


@dataclass(frozen=True, slots=True)
class _PairedCells:
    comparison: Comparison
    class_name: str
    pair: Pair

    def sessions(self, metric: Metric) -> tuple[CellSessions, CellSessions]:
        first, second = (
            self.comparison.sessions[CellKey(self.class_name, arm, metric.name)]
            for arm in self.pair
        )
        return first, second


def pair_cells(
    comparisons: Sequence[Comparison], pairs: Sequence[Pair], metrics: Sequence[Metric]
) -> tuple[PairCell, ...]:
    """Return every pair in every metric, class and point, family by family."""
    classes = dict.fromkeys(name for of in comparisons for name in of.class_names)
    swept = len(comparisons) > 1
    families = [[pair] for pair in pairs] if swept else [list(pairs)]
    rule = discovery_q if swept else holm
    return tuple(
        cell
        for family in families
        for metric in metrics
        for name in classes
        for cell in _family(
            [
                _PairedCells(of, name, pair)
                for pair in family
                for of in comparisons
                if all((name, arm, metric.name) in of.sessions for arm in pair)
            ],
            metric,
            rule,
        )
    )


def _family(
    pairs: Sequence[_PairedCells],
    metric: Metric,
    rule: Callable[[FloatArray], FloatArray],
) -> Iterator[PairCell]:
    refusals = [
        why_refused(metric, it.comparison.rules.options, *it.sessions(metric))
        for it in pairs
    ]
    contrasts = [
        contrast_of(one, other, metric, it.comparison.rules)
        for it, why in zip(pairs, refusals, strict=True)
        for one, other in [it.sessions(metric)]
        if not why
    ]
    judged = iter(adjust(contrasts, rule))
    for it, why in zip(pairs, refusals, strict=True):
        found = None if why else next(judged)
        alpha = it.comparison.rules.options.alpha
        yield PairCell(
            point=it.comparison.manifest.point.name,
            class_name=it.class_name,
            metric=metric,
            pair=it.pair,
            ratio=None if found is None else found.ratio,
            p=None if found is None else found.p,
            winner="refused" if found is None else _winner(found, metric, alpha),
            why=why,
        )


def _winner(contrast: Contrast, metric: Metric, alpha: float) -> Winner:
    word, _ = verdict_of(contrast, None, metric, alpha)
    match word:
        case "better":
            return "first"
        case "worse":
            return "second"
        case "equivalent":
            return "same"
        case _:
            return "undecided"
