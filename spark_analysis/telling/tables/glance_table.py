"""Two worlds at a glance: every arm's ratio in each class, marked with what was found.

Small enough for a first screen; intervals and other metrics are in ``worlds_table``.
"""

from __future__ import annotations

from typing import Final

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import Worlds
from spark_analysis.telling.sentences.numbers import NONE, percent, quantity, ratio
from spark_analysis.telling.tables.table import Column, Table

_MARKS: Final = {"better": "▼", "worse": "▲", "equivalent": "=", "identical": "="}


def glance_table(worlds: Worlds, other: Study) -> Table:
    """Return a row for each arm, the baseline's with its values; no sweep has one."""
    (first,) = worlds.witness.comparisons
    (second,) = other.comparisons
    metric, manifest = first.headline, first.manifest
    names = [of.manifest.world for of in (first, second)]
    columns = [Column(name="arm", heading="\narm")]
    for class_name in first.class_names:
        for place, world in enumerate(names):
            heading = f"{class_name if place == 0 else ''}\n{world}"
            name = f"{class_name}_{world}"
            columns.append(Column(name=name, heading=heading, write=str))
    return Table(
        name="glance",
        caption=(
            f"{metric.label} as ratio to {manifest.baseline}'s: ▼ better, ▲ worse, = "
            f"the same within {percent(metric.margin)}, no mark undecided, {NONE} not "
            "compared. Intervals: report."
        ),
        columns=tuple(columns),
        rows=tuple(
            (
                arm,
                *(
                    _told(of, name, arm, metric)
                    for name in first.class_names
                    for of in (first, second)
                ),
            )
            for arm in (manifest.baseline, *manifest.rivals)
        ),
    )


def _told(of: Comparison, class_name: str, arm: str, metric: Metric) -> str:
    there = class_name in of.class_names and arm in of.arm_names
    if not there:
        return NONE
    cell = of.cell(class_name, arm, metric.name)
    if arm != of.manifest.baseline:
        return _ratio(cell)
    return NONE if cell.withheld else quantity(cell.measured.estimate.value, metric)


def _ratio(cell: Cell) -> str:
    if cell.shown_contrast is None:
        return NONE
    mark = _MARKS.get(cell.verdict.word, " ")
    return f"{ratio(cell.shown_contrast.ratio.value)} {mark}"
