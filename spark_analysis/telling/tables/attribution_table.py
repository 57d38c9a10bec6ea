"""Every effect of a design as a table, what could not be computed with its reason."""

from __future__ import annotations

from typing import Any

from spark_analysis.judging.attribution import Attribution, Effect
from spark_analysis.judging.comparison import Comparison
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.telling.sentences.numbers import percent
from spark_analysis.telling.tables.table import (
    Column,
    Table,
    number,
    p_or_none,
    ratio_ends,
    ratio_or_none,
    share_ends,
)

_KINDS = {
    "effect": "effect",
    "alone": "alone",
    "last": "added last",
    "share": "share (Shapley)",
    "whole": "whole",
}


def attribution_table(comparison: Comparison) -> Table:
    """One row per design, class, metric and line; empty without a design."""
    level = percent(comparison.manifest.options.confidence)
    return Table(
        name="attribution",
        caption=(
            "What each factor changes, as a ratio. An effect of one factor is its mean "
            "over the settings of the others, of several an interaction; alone: added "
            "to nothing; added last: to all the others; share: the mean over all "
            "orders of adding, which sums to the whole, the effect of the arm that has "
            "all factors. Part: of the whole, in logs. "
            f"Intervals hold for all lines of a class and metric at {level}; p is "
            "adjusted for all lines, arms and classes."
        ),
        columns=(
            Column(name="arm", heading="arm"),
            Column(name="class", heading="class"),
            Column(name="metric", heading="metric"),
            Column(name="line", heading="line"),
            Column(name="factors", heading="factors"),
            Column(name="ratio", heading="ratio", write=ratio_or_none),
            Column(name="ratio_interval", heading=f"all {level}", write=ratio_ends),
            Column(name="part", heading="part [%]", write=number),
            Column(name="part_interval", heading=f"all {level}", write=share_ends),
            Column(name="p", heading="p", write=p_or_none),
            Column(name="finding", heading="finding"),
        ),
        rows=tuple(row for of in comparison.attributions for row in _rows(of)),
    )


def _rows(of: Attribution) -> list[tuple[Any, ...]]:
    key = (of.design.full, of.class_name, of.metric.name)
    if of.why:
        return [(*key, "", "", None, None, None, None, None, f"refused: {of.why}")]
    return [(*key, *_row(effect)) for effect in of.effects]


def _row(effect: Effect) -> tuple[Any, ...]:
    part = effect.part
    return (
        _KINDS[effect.kind],
        " × ".join(effect.factors),
        effect.ratio.value,
        effect.ratio,
        None if part is None else part.value * 100,
        None if part is None else Estimate(*(end * 100 for end in part)),
        effect.p,
        effect.decision if effect.found else "inconclusive",
    )
