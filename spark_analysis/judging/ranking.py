"""Which arm is best: every two arms of a class against each other, all at once.

To pick the arm with the lowest value and test it alone would be to choose the question
by the answer. So all pairs are tested as one family, and an arm is out only if another
one is shown to be ahead of it. What is left holds the best arm with the confidence of
the family, and may be several: then the data do not say which of them it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.decision import Decision, decide
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.pairs import Pair
from spark_analysis.judging.run_values import Key, paired_logs
from spark_analysis.judging.verdict import why_not_compared
from spark_analysis.statistics.difference import difference_p
from spark_analysis.statistics.intervals import (
    Estimate,
    log_ratio_interval,
    picked_interval,
)
from spark_analysis.statistics.paired import tost
from spark_analysis.statistics.ratios import ratio_of
from spark_analysis.statistics.step_down import holm


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The arms of a class in a metric; ``order`` is by typical value, the best first.

    ``best`` are those of which none is shown to be worse than any other, in that order.
    ``decisions`` are on the ratio first / second of every pair that can be compared.
    """

    order: tuple[str, ...]
    best: tuple[str, ...]
    decisions: Mapping[Pair, Decision]

    @property
    def first(self) -> str:
        """The best arm, or of several that may be it the one with the best value."""
        return self.best[0]

    def same(self, arm: str) -> bool:
        """Whether an arm is known to be as good as the first, within the margin."""
        pairs = (Pair(self.first, arm), Pair(arm, self.first))
        return any(self.decisions.get(pair) == "same" for pair in pairs)


def rank(comparison: Comparison, class_name: str, metric: Metric) -> Ranking:
    """Rank all arms but the A/A arm. Cost: that of a test per pair of arms."""
    arms = [arm for arm in comparison.arm_names if arm != comparison.again]
    values = {arm: comparison.typical(class_name, arm, metric) for arm in arms}
    sign = 1 if metric.lower_is_better else -1
    order = sorted(arms, key=lambda arm: sign * values[arm])
    decisions = _decisions(comparison, class_name, metric, order)
    beaten = {
        pair.second if (decision == "lower") == metric.lower_is_better else pair.first
        for pair, decision in decisions.items()
        if decision in ("lower", "higher")
    }
    return Ranking(
        order=tuple(order),
        best=tuple(arm for arm in order if arm not in beaten) or (order[0],),
        decisions=decisions,
    )


def picked_ratio(comparison: Comparison, cell: Cell, of: int) -> Estimate:
    """Return the ratio to the baseline of a cell picked out of ``of`` for its size.

    Its interval holds for all of them at once (`picked_interval`).
    """
    manifest = comparison.manifest
    key = Key(cell.class_name, cell.arm)
    runs, metric = comparison.run_values, cell.metric.name
    logs = paired_logs(runs, key, manifest.baseline, metric)
    return ratio_of(picked_interval(logs, manifest.options.alpha, of))


def _decisions(
    comparison: Comparison, class_name: str, metric: Metric, arms: list[str]
) -> dict[Pair, Decision]:
    measured = {
        arm: comparison.cell(class_name, arm, metric.name).measured for arm in arms
    }
    pairs = [
        Pair(*two)
        for two in combinations(arms, 2)
        if not why_not_compared(metric, *(measured[arm] for arm in two))
    ]
    if not pairs:
        return {}
    logs = [
        paired_logs(
            comparison.run_values,
            Key(class_name, pair.first),
            pair.second,
            metric.name,
        )
        for pair in pairs
    ]
    options = comparison.manifest.options
    seed = comparison.manifest.seed
    differ = difference_p(np.array(logs).T, [class_name] * len(pairs), seed)
    same = holm(np.array([tost(of, metric.margin) for of in logs]))
    return {
        pair: decide(
            ratio_of(log_ratio_interval(of, options.confidence)),
            blocks=len(of),
            p=float(p),
            p_same=float(p_same),
            alpha=options.alpha,
        )
        for pair, of, p, p_same in zip(pairs, logs, differ, same, strict=True)
    }
