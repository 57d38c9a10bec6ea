"""The table of the machine's speed under each arm, by two witnesses."""

from __future__ import annotations

from typing import Any

from spark_analysis.judging.comparison import Comparison
from spark_analysis.recordings.machine_speed import loop_ratio
from spark_analysis.recordings.paired_cost import PairedCost
from spark_analysis.telling.sentences.numbers import percent
from spark_analysis.telling.tables.table import (
    Column,
    Table,
    count,
    ratio_ends,
    ratio_or_none,
)


def speed_table(comparison: Comparison) -> Table:
    """One row per arm whose requests have a measured cost beside the baseline's."""
    manifest = comparison.manifest
    level = percent(manifest.options.confidence)
    return Table(
        name="speed",
        caption=(
            f"How much slower the machine was than under {manifest.baseline}, by the "
            "time of a fixed loop and by what identical requests cost the broker, with "
            f"{level} intervals over blocks, each by itself. The cost is what "
            "handlers used, without reading and choosing; the loop alone decides what "
            "counts."
        ),
        columns=(
            Column(name="arm", heading="arm"),
            Column(name="loop", heading="loop", write=ratio_or_none),
            Column(name="loop_interval", heading=level, write=ratio_ends),
            Column(name="cost", heading="cost", write=ratio_or_none),
            Column(name="cost_interval", heading=level, write=ratio_ends),
            Column(name="blocks", heading="blocks", write=count),
            Column(name="pairs", heading="pairs", write=count),
            Column(name="left_out", heading="left out", write=count),
        ),
        rows=tuple(_row(comparison, cost) for cost in comparison.paired_costs),
    )


def _row(comparison: Comparison, cost: PairedCost) -> tuple[Any, ...]:
    loop = loop_ratio(comparison.manifest, cost.arm)
    return (
        cost.arm,
        None if loop is None else loop.value,
        loop,
        cost.ratio.value,
        cost.ratio,
        len(cost.ratios),
        cost.pairs,
        cost.left_out,
    )
