"""The tables of a report: what was compared, where time went, A/A, and every run."""

from __future__ import annotations

import math
from typing import Any

from spark_analysis.judging.comparison import Cell, Comparison, PhaseMeans
from spark_analysis.recordings.phases import PHASES
from spark_analysis.telling.sentences.numbers import percent
from spark_analysis.telling.tables.attribution_table import attribution_table
from spark_analysis.telling.tables.speed_table import speed_table
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


def tables(comparison: Comparison) -> tuple[Table, ...]:
    """Return every table of a report."""
    return (
        comparison_table(comparison),
        cells_table(comparison),
        *([phases_table(comparison)] if comparison.phases else ()),
        again_table(comparison),
        runs_table(comparison),
        *([speed_table(comparison)] if comparison.paired_costs else ()),
        *([attribution_table(comparison)] if comparison.attributions else ()),
    )


# ---- the tables ----


def comparison_table(comparison: Comparison) -> Table:
    """One row per class and arm: what a reader looks at first."""
    headline = comparison.headline
    level = percent(comparison.manifest.options.confidence)
    columns = [Column(name="class", heading="class"), Column(name="arm", heading="arm")]
    for metric in comparison.metrics:
        heading = f"{metric.label} [{metric.unit}]"
        columns.append(Column(name=metric.name, heading=heading, write=number))
        if metric == headline:
            columns.append(Column(name="interval", heading=level, write=ends))
    columns += [
        Column(name="ratio", heading="ratio", write=ratio_or_none),
        Column(name="ratio_interval", heading=level, write=ratio_ends),
        Column(name="p", heading="p", write=p_or_none),
        Column(name="verdict", heading="verdict"),
    ]
    return Table(
        name="comparison",
        caption=(
            "Latency from the intended instant, and good answers per second, with "
            f"{level} intervals, each by itself. Ratio and verdict compare the "
            f"{headline.label} with {comparison.manifest.baseline}; p is adjusted for "
            "all arms and classes; † marks a thin tail."
        ),
        columns=tuple(columns),
        rows=tuple(
            _comparison_row(comparison, name, arm)
            for name in comparison.class_names
            for arm in comparison.arm_names
        ),
    )


def _comparison_row(
    comparison: Comparison, class_name: str, arm: str
) -> tuple[Any, ...]:
    leading = comparison.cell(class_name, arm, comparison.headline.name)
    contrast = leading.shown_contrast
    row: list[Any] = [class_name, arm]
    for metric in comparison.metrics:
        cell = comparison.cell(class_name, arm, metric.name)
        row.append(cell.estimate.value if cell.estimate else None)
        if cell is leading:
            row.append(cell.estimate)
    return (
        *row,
        contrast.ratio.value if contrast else None,
        contrast.ratio if contrast else None,
        contrast.p if contrast else None,
        verdict_word(leading),
    )


def verdict_word(cell: Cell) -> str:
    """Return a verdict's word, with a dagger where the tail is thin."""
    return cell.verdict.word + ("†" if cell.verdict.exploratory else "")


def cells_table(comparison: Comparison) -> Table:
    """One row per class, arm and metric, with everything that was computed."""
    columns = (
        Column(name="class", heading="class"),
        Column(name="arm", heading="arm"),
        Column(name="metric", heading="metric"),
        Column(name="value", heading="value", write=number),
        Column(name="interval", heading="interval", write=ends),
        Column(name="ratio", heading="ratio", write=ratio_or_none),
        Column(name="ratio_interval", heading="interval", write=ratio_ends),
        Column(name="p", heading="p", write=p_or_none),
        Column(name="p_same", heading="p same", write=p_or_none),
        Column(name="shift", heading="Hodges–Lehmann", write=ratio_or_none),
        Column(name="pooled_ratio", heading="bootstrap", write=ratio_ends),
        Column(name="blocks_lower", heading="lower in", write=number),
        Column(name="blocks", heading="blocks", write=number),
        Column(name="requests", heading="requests", write=count),
        Column(name="vif", heading="VIF", write=number),
        Column(name="effective", heading="effective", write=number),
        Column(name="verdict", heading="verdict"),
    )
    return Table(
        name="cells",
        caption=(
            "Every cell. The bootstrap interval is that of the ratio of pooled "
            "quantiles; effective exceedances are those beyond the quantile, weighed "
            "for their clustering."
        ),
        columns=columns,
        rows=tuple(_cell_row(cell) for cell in comparison.cells),
    )


def _cell_row(cell: Cell) -> tuple[Any, ...]:
    measured, contrast = cell.measured, cell.shown_contrast
    tail = measured.tail
    return (
        cell.class_name,
        cell.arm,
        cell.metric.name,
        cell.estimate.value if cell.estimate else None,
        cell.estimate,
        contrast.ratio.value if contrast else None,
        contrast.ratio if contrast else None,
        contrast.p if contrast else None,
        contrast.p_same if contrast else None,
        contrast.shift if contrast else None,
        cell.pooled_ratio if contrast else None,
        contrast.blocks_lower if contrast else None,
        cell.blocks,
        measured.requests,
        tail.vif if tail else None,
        tail.effective if tail else None,
        cell.verdict.text + ("†" if cell.verdict.exploratory else ""),
    )


def phases_table(comparison: Comparison) -> Table:
    """Where the time goes, over all answered requests and over the slowest."""
    columns = (
        Column(name="class", heading="class"),
        Column(name="arm", heading="arm"),
        Column(name="requests_of", heading="of"),
        Column(name="requests", heading="requests", write=count),
        *(
            Column(name=p.name.replace("_ns", "_ms"), heading=p.label, write=number)
            for p in PHASES
        ),
        Column(name="total_ms", heading="total", write=number),
    )
    return Table(
        name="phases",
        caption=(
            "Mean milliseconds in each phase of answered requests; the slowest are "
            f"those at or beyond their arm's {comparison.tail_metric.label}."
        ),
        columns=columns,
        rows=tuple(_phase_row(means) for means in comparison.phases),
    )


def _phase_row(means: PhaseMeans) -> tuple[Any, ...]:
    values = [means.means_ms[phase.name] for phase in PHASES]
    of = "slowest" if means.slowest else "all"
    total = math.fsum(values)
    return (means.class_name, means.arm, of, means.requests, *values, total)


def again_table(comparison: Comparison) -> Table:
    """What the A/A arm shows; empty where there is none."""
    again = comparison.again
    cells = comparison.of_arm(again) if again else ()
    columns = (
        Column(name="class", heading="class"),
        Column(name="metric", heading="metric"),
        Column(name="ratio", heading="ratio", write=ratio_or_none),
        Column(name="ratio_interval", heading="interval", write=ratio_ends),
        Column(name="p", heading="p", write=p_or_none),
        Column(name="verdict", heading="verdict"),
    )
    return Table(
        name="again",
        caption=(
            f"{again} against {comparison.manifest.baseline}: the same program, the "
            "same requests. Whatever differs here is noise."
        ),
        columns=columns,
        rows=tuple(
            (
                cell.class_name,
                cell.metric.name,
                contrast.ratio.value,
                contrast.ratio,
                contrast.p,
                verdict_word(cell),
            )
            for cell in cells
            if (contrast := cell.shown_contrast)
        ),
    )


def runs_table(comparison: Comparison) -> Table:
    """Every run in the order it ran, those that do not count with the reason."""
    manifest = comparison.manifest
    columns = (
        Column(name="run_id", heading="run"),
        Column(name="block", heading="block", write=plain_number),
        Column(name="order", heading="order", write=plain_number),
        Column(name="arm", heading="arm"),
        Column(name="sent", heading="sent", write=count),
        Column(name="ok", heading="ok", write=count),
        Column(name="error", heading="error", write=count),
        Column(name="timeout", heading="timeout", write=count),
        Column(name="unfinished", heading="unfinished", write=count),
        Column(name="lateness_p99_ms", heading="late p99 [ms]", write=number),
        Column(name="load_average", heading="load", write=number),
        Column(name="excluded", heading="not compared because"),
    )
    rows = []
    for run in manifest.runs:
        late = run.lateness_p99_ns
        counts = (run.counts.get(name) for name in _COUNTED)
        rows.append(
            (
                run.run_id,
                run.block,
                run.order,
                run.arm,
                *counts,
                None if late is None else late / 1e6,
                run.load_average,
                manifest.why_excluded(run),
            )
        )
    return Table(
        name="runs",
        caption="Every run as recorded, in the order in which they ran.",
        columns=columns,
        rows=tuple(rows),
    )


_COUNTED = ("sent", "ok", "error", "timeout", "unfinished")
