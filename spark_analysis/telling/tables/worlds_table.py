"""The table of worlds: what each says of a class under an arm, side by side."""

from __future__ import annotations

from typing import Any

from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.worlds import WorldCell, Worlds
from spark_analysis.telling.sentences.numbers import percent
from spark_analysis.telling.tables.table import (
    Column,
    Table,
    number,
    ratio_ends,
    ratio_or_none,
)


def worlds_tables(worlds: Worlds) -> tuple[Table, ...]:
    """Return a table for each world beside the witness, with every metric."""
    return tuple(
        _table(worlds, study.manifest.world, None, f"worlds-{study.manifest.world}")
        for study in worlds.others
    )


def headline_table(worlds: Worlds, world: str) -> Table:
    """Return one row per class and arm, in the metric that the witness tells first."""
    return _table(worlds, world, worlds.witness.headline, f"headline-{world}")


def _table(worlds: Worlds, world: str, metric: Metric | None, name: str) -> Table:
    witness = worlds.witness.manifest
    there = next(s.manifest for s in worlds.others if s.manifest.world == world)
    cells = [
        it
        for it in worlds.beside(world)
        if metric is None or it.witness.metric.name == metric.name
    ]
    in_requests = bool(witness.points[0].mean_request_ms) and bool(
        there.points[0].mean_request_ms
    )
    unit = "in mean requests" if in_requests else "in milliseconds"
    level = percent(witness.options.confidence)
    columns = [
        *([Column(name="point", heading="point")] if worlds.witness.swept else []),
        Column(name="class", heading="class"),
        Column(name="arm", heading="arm"),
        *([] if metric else [Column(name="metric", heading="metric")]),
    ]
    for each in (witness.world, world):
        columns += [
            Column(name=f"{each}_value", heading=each, write=number),
            Column(name=f"{each}_ratio", heading="ratio", write=ratio_or_none),
            Column(name=f"{each}_interval", heading=level, write=ratio_ends),
        ]
    columns += [
        Column(name="between", heading=f"{world} / {witness.world}", write=number),
        Column(name="between_interval", heading=level, write=ratio_ends),
        Column(name="agreement", heading="agreement"),
    ]
    of = f"{metric.label} of each class" if metric else "Each metric of each class"
    return Table(
        name=name,
        caption=(
            f"{of} in the {witness.world} and the {world} world: value (ms, or "
            f"per second), ratio to {witness.baseline}, and the quotient of the values "
            f"(latencies {unit}), with {level} intervals, each by itself. Undecided: "
            f"the {world} world could not tell the arm from {witness.baseline}; open: "
            f"the {witness.world} world could not."
        ),
        columns=tuple(columns),
        rows=tuple(_row(worlds, cell, metric is None) for cell in cells),
    )


def _row(worlds: Worlds, cell: WorldCell, every_metric: bool) -> tuple[Any, ...]:
    row: list[Any] = [cell.point] if worlds.witness.swept else []
    row += [cell.witness.class_name, cell.witness.arm]
    if every_metric:
        row.append(cell.witness.metric.name)
    for each in (cell.witness, cell.other):
        value, contrast = each.estimate, each.shown_contrast
        row += [
            value.value if value else None,
            contrast.ratio.value if contrast else None,
            contrast.ratio if contrast else None,
        ]
    between = cell.between
    is_base = cell.witness.verdict.word == "baseline"
    row += [
        between.value if between else None,
        between,
        "baseline" if is_base else cell.agreement,
    ]
    return tuple(row)
