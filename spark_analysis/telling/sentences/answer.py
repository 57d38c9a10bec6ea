"""The answer for a first screen: the best arm, what others pay under it, its parts.

One arm is told whole where `lead` tells all arms: which is best for the first class, by
how much and how sure that is, what becomes of every other class under it, and what each
factor had in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.ranking import Ranking
from spark_analysis.telling.sentences.attribution_sentences import part_sentence
from spark_analysis.telling.sentences.lead import (
    NO_BEST,
    by_estimate,
    how_sure,
    lead,
    the_others,
)
from spark_analysis.telling.sentences.numbers import change, listed, ratio_interval
from spark_analysis.telling.sentences.verdict_sentences import (
    differs,
    finding,
    from_to,
    story,
    subject,
    telling_cell,
)


def answer(comparison: Comparison, ranking: Ranking | None) -> tuple[str, ...]:
    """Return a few sentences: who is best, what others pay, what had which part.

    ``ranking`` is of the arms for the first class in the headline, None without rivals.
    """
    if ranking is None:
        return lead(comparison)
    first, metric = comparison.class_names[0], comparison.headline
    if len(ranking.best) == len(ranking.order):
        return (*lead(comparison)[:1], NO_BEST, *_parts(comparison, first, ranking))
    return (
        _best(comparison, first, metric, ranking),
        *_pay(comparison, ranking.first),
        *_parts(comparison, first, ranking),
    )


def _best(
    comparison: Comparison, class_name: str, metric: Metric, ranking: Ranking
) -> str:
    """Say which arm is best, by how much and how sure, and which others may be it."""
    cell = comparison.cell(class_name, ranking.first, metric.name)
    who = f"Best for the {subject(cell)} is {ranking.first}{by_estimate(ranking)}"
    others = the_others(ranking, metric)
    sure = how_sure(comparison, cell)
    if not sure:
        return f"{who}; {others}."
    than = f" than under {comparison.manifest.baseline}" if differs(cell) else ""
    values = from_to(comparison, cell)
    return f"{who}: {finding(cell)}{than} ({values}; {sure}); {others}."


def _pay(comparison: Comparison, arm: str) -> tuple[str, ...]:
    """Say of every other class whether it pays under an arm, gains, or is open."""
    if arm == comparison.manifest.baseline:
        return ()
    found = [_of_class(comparison, name, arm) for name in comparison.class_names[1:]]
    found += [
        f"{cell.class_name} has a {cell.metric.label} that is {finding(cell)}"
        for cell in story(comparison, arm).others
        if cell.metric.quantile is None
        and cell.class_name in comparison.class_names[1:]
    ]
    return (f"Under {arm}, {listed(found)}.",) if found else ()


def _of_class(comparison: Comparison, class_name: str, arm: str) -> str:
    cell = telling_cell(comparison, class_name, arm)
    if cell is None:
        return f"no quantile of {class_name} can be compared"
    assert cell.contrast is not None
    label, ends = cell.metric.label, ratio_interval(cell.contrast.ratio)
    if cell.verdict.word == "worse":
        return f"{class_name} pays ({label} {finding(cell)}, interval {ends} by itself)"
    if cell.decided:
        return f"{class_name} does not pay ({label} {finding(cell)})"
    return (
        f"whether {class_name} pays is undecided ({label} "
        f"{change(cell.contrast.ratio.value)} by its estimate, interval {ends} by "
        "itself)"
    )


def _parts(comparison: Comparison, class_name: str, ranking: Ranking) -> Sequence[str]:
    """Say what each factor has in the best arm that has all of a design's factors."""
    for arm in ranking.order:
        for design in comparison.designs:
            if design.full == arm:
                said = part_sentence(comparison, design, class_name)
                if said:
                    return (said,)
    return ()
