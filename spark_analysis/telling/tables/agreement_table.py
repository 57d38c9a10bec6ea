"""The table of agreement: a ratio in every world side by side, and beside theory."""

from __future__ import annotations

from typing import Any

from spark_analysis.judging.worlds import AGREEMENTS, WorldCell, Worlds
from spark_analysis.telling.sentences.agreement_sentences import compared
from spark_analysis.telling.sentences.numbers import percent
from spark_analysis.telling.tables.table import (
    Column,
    Table,
    ratio_ends,
    ratio_or_none,
)


def agreement_tables(worlds: Worlds) -> tuple[Table, ...]:
    """Return the tables that have rows: ratios, orders of arms, theory."""
    found = (ratios_table(worlds), orders_table(worlds), theory_table(worlds))
    return tuple(table for table in found if table.rows)


def ratios_table(worlds: Worlds) -> Table:
    """Return one row per class and arm, with the ratio to the baseline in each world.

    The last column says of every two worlds that both have the arm how they agree.
    """
    cells = compared(worlds)
    names = [study.manifest.world for study in worlds.studies]
    level = percent(worlds.witness.manifest.options.confidence)
    columns = [
        *([Column(name="point", heading="point")] if worlds.witness.swept else []),
        Column(name="class", heading="class"),
        Column(name="arm", heading="arm"),
    ]
    for name in names:
        columns += [
            Column(name=name, heading=name, write=ratio_or_none),
            Column(name=f"{name}_interval", heading=level, write=ratio_ends),
        ]
    columns.append(Column(name="agreement", heading=f"within {percent(worlds.margin)}"))
    found: dict[tuple[str, str, str], list[WorldCell]] = {}
    for it in cells:
        key = it.point, it.witness.class_name, it.witness.arm
        found.setdefault(key, []).append(it)
    return Table(
        name="agreement",
        caption=(
            f"Ratio of the {worlds.witness.headline.label} to "
            f"{worlds.witness.manifest.baseline}'s in each world, with {level} "
            "intervals, each by itself; and which worlds agree."
        ),
        columns=tuple(columns),
        rows=tuple(_row(worlds, names, *each) for each in found.items()),
    )


def _row(
    worlds: Worlds,
    names: list[str],
    key: tuple[str, str, str],
    cells: list[WorldCell],
) -> tuple[Any, ...]:
    of_world = {it.world: it.other for it in cells}
    of_world |= {it.first: it.witness for it in cells}
    row: list[Any] = list(key if worlds.witness.swept else key[1:])
    for name in names:
        contrast = of_world[name].shown_contrast if name in of_world else None
        row += [contrast.ratio.value if contrast else None]
        row += [contrast.ratio if contrast else None]
    return (*row, _said(cells))


def _said(cells: list[WorldCell]) -> str:
    """Return which pairs of worlds agree and which do not, by how they do."""
    pairs: dict[str, list[str]] = {}
    for it in sorted(cells, key=lambda it: AGREEMENTS.index(it.agreement)):
        pairs.setdefault(it.agreement, []).append(f"{it.first} & {it.world}")
    said = {"agree" if how == "agrees" else how: of for how, of in pairs.items()}
    if len(said) == 1 and len(cells) > 1:
        return f"all {next(iter(said))}"
    return "; ".join(f"{how}: {', '.join(of)}" for how, of in said.items())


def orders_table(worlds: Worlds) -> Table:
    """Return one row per class and world: its arms from the best to the worst."""
    return Table(
        name="orders",
        caption=(
            f"Arms by their {worlds.witness.headline.label}, the best first; those in "
            "front of the bar are not shown to be worse than any other."
        ),
        columns=(
            Column(name="class", heading="class"),
            Column(name="world", heading="world"),
            Column(name="order", heading="order"),
        ),
        rows=tuple(
            (name, world, _order(of.order, of.best))
            for (world, name), of in sorted(
                worlds.orders.items(), key=lambda it: _place(worlds, *it[0])
            )
        ),
    )


def _order(order: tuple[str, ...], best: tuple[str, ...]) -> str:
    rest = [arm for arm in order if arm not in best]
    return " | ".join(", ".join(part) for part in (best, rest) if part)


def _place(worlds: Worlds, world: str, class_name: str) -> tuple[int, int]:
    names = [study.manifest.world for study in worlds.studies]
    return worlds.witness.class_names.index(class_name), names.index(world)


def theory_table(worlds: Worlds) -> Table:
    """Return one row per ratio of mean latencies that theory knows, and world."""
    level = percent(worlds.witness.manifest.options.confidence)
    return Table(
        name="theory",
        caption=(
            f"Mean latency relative to {worlds.witness.manifest.baseline}'s: closed "
            f"forms, and what each world measured with {level} intervals for all rows "
            f"of a world at once; agreement is to within "
            f"{percent(worlds.theory.margin)}."
        ),
        columns=(
            Column(name="class", heading="class"),
            Column(name="arm", heading="arm"),
            Column(name="world", heading="world"),
            Column(name="theory", heading="theory", write=ratio_or_none),
            Column(name="ratio", heading="ratio", write=ratio_or_none),
            Column(name="interval", heading=level, write=ratio_ends),
            Column(name="verdict", heading="agreement"),
        ),
        rows=tuple(
            (
                row.class_name,
                row.arm,
                row.world,
                row.predicted,
                row.measured.value,
                row.measured,
                row.verdict,
            )
            for row in sorted(
                worlds.theory.rows, key=lambda it: (it.class_name, it.arm)
            )
        ),
    )
