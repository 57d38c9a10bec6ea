"""The tables of a sweep: every point, every level, every pair."""

from __future__ import annotations

from typing import Any

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.levels import LevelRatio
from spark_analysis.judging.pairs import PairCell
from spark_analysis.judging.study import Study
from spark_analysis.telling.sentences.numbers import percent
from spark_analysis.telling.tables.cpu_table import cpu_table
from spark_analysis.telling.tables.point_tables import verdict_word
from spark_analysis.telling.tables.table import (
    Column,
    Table,
    count,
    ends,
    number,
    p_or_none,
    plain_number,
    ratio_ends,
    ratio_or_none,
)
from spark_analysis.telling.tables.violations_table import violations_table


def study_tables(study: Study) -> tuple[Table, ...]:
    """Return the tables that are about the whole study; empty ones are left out."""
    manifest = study.manifest
    found = [pairs_table(study), violations_table(manifest), cpu_table(manifest)]
    if study.swept:
        found += [levels_table(study), _points_table(study)]
    return tuple(table for table in found if table.rows)


def levels_table(study: Study) -> Table:
    """One row per level, class and arm: the ratio over the points of that level."""
    level = percent(study.manifest.options.confidence)
    return Table(
        name="levels",
        caption=(
            f"Ratio of the {study.headline.label} to {study.manifest.baseline}'s: "
            "geometric mean over the points of each level, taken in each block first, "
            f"with the {level} interval over blocks, each by itself. None where the "
            "arms are not compared at some point of the level."
        ),
        columns=(
            Column(name="factor", heading="factor"),
            Column(name="level", heading="level"),
            Column(name="class", heading="class"),
            Column(name="arm", heading="arm"),
            Column(name="ratio", heading="ratio", write=ratio_or_none),
            Column(name="ratio_interval", heading=level, write=ratio_ends),
            Column(name="points", heading="compared at", write=plain_number),
            Column(name="of", heading="of", write=plain_number),
        ),
        rows=tuple(_level_row(found) for found in study.levels),
    )


def _level_row(found: LevelRatio) -> tuple[Any, ...]:
    return (
        found.factor,
        found.level,
        found.class_name,
        found.arm,
        found.ratio.value if found.ratio else None,
        found.ratio,
        found.points,
        found.of,
    )


def pairs_table(study: Study) -> Table:
    """One row per pair, metric, point and class: who is ahead."""
    alpha = percent(study.manifest.options.alpha)
    return Table(
        name="pairs",
        caption=(
            "Arms against each other: ratio of the first to the second. q is adjusted "
            "over all points and classes of a pair and metric (false discovery rate): "
            f"of the entries with a winner, {alpha} at most are expected to be wrong, "
            "and their intervals are widened to match."
        ),
        columns=(
            Column(name="first", heading="first"),
            Column(name="second", heading="second"),
            Column(name="metric", heading="metric"),
            Column(name="point", heading="point"),
            Column(name="class", heading="class"),
            Column(name="ratio", heading="ratio", write=ratio_or_none),
            Column(name="ratio_interval", heading="interval", write=ratio_ends),
            Column(name="q", heading="q", write=p_or_none),
            Column(name="ahead", heading="ahead"),
        ),
        rows=tuple(_pair_row(cell) for cell in study.pairs),
    )


def _pair_row(cell: PairCell) -> tuple[Any, ...]:
    return (
        *cell.pair,
        cell.metric.name,
        cell.point,
        cell.class_name,
        cell.ratio.value if cell.ratio else None,
        cell.ratio,
        cell.q if cell.ratio else None,
        cell.ahead if not cell.why else f"refused: {cell.why}",
    )


def _points_table(study: Study) -> Table:
    """One row per point, class and arm: the headline metric, and goodput."""
    headline, goodput = study.headline, study.metrics[-1]
    level = percent(study.manifest.options.confidence)
    names = list(study.manifest.points[0].levels)
    return Table(
        name="points",
        caption=(
            f"The {headline.label} of every point, class and arm with {level} "
            f"intervals; the ratio is to {study.manifest.baseline} at the same point; "
            "p is adjusted for all arms and classes of its point."
        ),
        columns=(
            *(Column(name=name, heading=name) for name in names),
            Column(name="class", heading="class"),
            Column(name="arm", heading="arm"),
            Column(
                name=headline.name,
                heading=f"{headline.label} [{headline.unit}]",
                write=number,
            ),
            Column(name="interval", heading=level, write=ends),
            Column(name="ratio", heading="ratio", write=ratio_or_none),
            Column(name="ratio_interval", heading=level, write=ratio_ends),
            Column(name="p", heading="p", write=p_or_none),
            Column(name="verdict", heading="verdict"),
            Column(name=goodput.name, heading="goodput [/s]", write=number),
            Column(name="requests", heading="requests", write=count),
        ),
        rows=tuple(
            (*_levels(comparison, names), *_point_row(comparison, cell))
            for comparison in study.comparisons
            for cell in comparison.cells
            if cell.metric == headline
        ),
    )


def _levels(comparison: Comparison, names: list[str]) -> list[str]:
    return [comparison.manifest.point.levels.get(name, "") for name in names]


def _point_row(comparison: Comparison, cell: Cell) -> tuple[Any, ...]:
    contrast, estimate = cell.shown_contrast, cell.estimate
    goodput = comparison.cell(cell.class_name, cell.arm, comparison.metrics[-1].name)
    return (
        cell.class_name,
        cell.arm,
        estimate.value if estimate else None,
        estimate,
        contrast.ratio.value if contrast else None,
        contrast.ratio if contrast else None,
        contrast.p if contrast else None,
        verdict_word(cell),
        goodput.measured.estimate.value,
        cell.measured.requests,
    )
