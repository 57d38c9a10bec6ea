"""An election in several worlds as tables: at a glance, arm by arm, and in order."""

from __future__ import annotations

from itertools import chain
from typing import Any

from spark_analysis.incidents.incident import IncidentCell
from spark_analysis.incidents.worlds import IncidentPair, IncidentWorlds
from spark_analysis.telling.sentences.incident_world_sentences import order_text
from spark_analysis.telling.sentences.numbers import percent
from spark_analysis.telling.tables.incident_table import incident_summary
from spark_analysis.telling.tables.table import (
    Column,
    Table,
    ends,
    number,
    ratio_ends,
    ratio_or_none,
)


def incident_worlds_tables(worlds: IncidentWorlds) -> tuple[Table, ...]:
    """Return what is told at a glance, orders, and where there are two, agreement."""
    if len(worlds.incidents) == 1:
        return (incident_summary(worlds.witness), orders_table(worlds))
    return (summaries(worlds), orders_table(worlds), agreement_table(worlds))


def summaries(worlds: IncidentWorlds) -> Table:
    """Return one row per world and arm, one column per measure of the witness."""
    found = [incident_summary(it) for it in worlds.incidents]
    first = found[0]
    names = [column.name for column in first.columns]
    rows = []
    for incident, summary in zip(worlds.incidents, found, strict=True):
        there = [column.name for column in summary.columns]
        for row in summary.rows:
            cells = dict(zip(there, row, strict=True))
            rows.append((incident.manifest.world, *(cells.get(it) for it in names)))
    return Table(
        name=first.name,
        caption=f"{first.caption} Each world by itself.",
        columns=(Column(name="world", heading="world"), *first.columns),
        rows=tuple(rows),
    )


def orders_table(worlds: IncidentWorlds) -> Table:
    """Return one row per measure and world: its arms from the best to the worst."""
    return Table(
        name="incident-orders",
        caption=(
            "Arms by their means, the best first; those in front of the bar are not "
            "shown to be behind any other."
        ),
        columns=(
            Column(name="measure", heading="measure"),
            Column(name="world", heading="world"),
            Column(name="order", heading="order"),
        ),
        rows=tuple(
            (measure.heading, it.manifest.world, order_text(it.orders[measure.name]))
            for measure in worlds.witness.measures
            for it in worlds.incidents
            if measure.name in it.orders
        ),
    )


def agreement_table(worlds: IncidentWorlds) -> Table:
    """Return one row per measure, arm and two worlds, with how they agree."""
    options = worlds.witness.manifest.options
    level, margin = percent(options.confidence), percent(options.margin_worlds)
    columns = [
        Column(name="measure", heading="measure"),
        Column(name="arm", heading="arm"),
    ]
    for name in ("first", "second"):
        columns += [
            Column(name=f"{name}_world", heading="world"),
            Column(name=name, heading="mean", write=number),
            Column(name=f"{name}_interval", heading=level, write=ends),
            Column(name=f"{name}_ratio", heading="ratio", write=ratio_or_none),
            Column(name=f"{name}_ratio_interval", heading=level, write=ratio_ends),
        ]
    columns.append(Column(name="agreement", heading=f"within {margin}"))
    return Table(
        name="incident-worlds",
        caption=(
            f"The election in two worlds at a time: means and ratios to "
            f"{worlds.witness.manifest.baseline} with {level} intervals, each by "
            "itself, and whether the ratios agree."
        ),
        columns=tuple(columns),
        rows=tuple(_row(pair) for pair in worlds.pairs),
    )


def _row(pair: IncidentPair) -> tuple[Any, ...]:
    sides = (pair.first, pair.mine), (pair.other, pair.theirs)
    told = chain.from_iterable(_side(world, cell) for world, cell in sides)
    return (pair.mine.measure.heading, pair.mine.arm, *told, pair.agreement)


def _side(world: str, cell: IncidentCell) -> tuple[Any, ...]:
    assert cell.ratio is not None
    return world, cell.estimate.value, cell.estimate, cell.ratio.value, cell.ratio
