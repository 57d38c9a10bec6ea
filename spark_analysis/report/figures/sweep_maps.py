"""Figures of a sweep: ratios by factor level, and the better arm at each point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from spark_analysis.report.content.numbers import ratio
from spark_analysis.report.content.schema import Pair, Results
from spark_analysis.report.content.tables import factors_of, metric_label
from spark_analysis.report.figures.interval_bars import (
    Interval,
    draw_interval,
    limits_of,
)
from spark_analysis.report.figures.style import (
    INK,
    MUTED,
    REFERENCE,
    colour,
    legend,
    log_scale,
    marker,
    new_figure,
    plain_log_axis,
    rivals,
)

# Not ink, which is white on a dark page.
_BASELINE: Final = "#5f636d"
# A ratio of this size, in either direction, has the full colour.
_FULL: Final = 4.0


def by_level(found: Results) -> Figure:
    """Draw one panel per class and factor: levels across, an interval per arm."""
    names, factors = _class_names(found), factors_of(found)
    label = metric_label(found, found["primary"]["metric"])
    figure = new_figure(0.7 + 2.0 * len(names))
    axes = figure.subplots(len(names), len(factors), sharey="row", squeeze=False)
    for row, name in zip(axes, names, strict=True):
        for axis, (factor, levels) in zip(row, factors.items(), strict=True):
            _level_panel(axis, found, name, factor, levels)
        for axis in row:
            log_scale(axis, "y")
        for axis in row:
            axis.axhline(1, color=INK, linewidth=0.8, zorder=REFERENCE)
        row[0].set_ylabel(f"{name}: {label} ratio")
        plain_log_axis(row[0], "y")
    for axis, factor in zip(axes[-1], factors, strict=True):
        axis.set_xlabel(factor)
    legend(figure, axes[0, 0], rivals(found))
    return figure


def _class_names(found: Results) -> list[str]:
    present = {row["class"] for row in found["rows"]}
    return [it["name"] for it in found["classes"] if it["name"] in present]


def _level_panel(
    axis: Axes, found: Results, class_name: str, factor: str, levels: list[str]
) -> None:
    rows = [it for it in found["levels"] if it["class"] == class_name]
    intervals = [
        Interval(it["ratio"], it["ratio_low"], it["ratio_high"])
        for it in rows
        if it["ratio"] is not None
    ]
    limits = limits_of(intervals)
    arms = rivals(found)
    for rank, arm in enumerate(arms):
        shift = (rank - (len(arms) - 1) / 2) * 0.5 / max(len(arms), 1)
        places, values = [], []
        for it in rows:
            if (it["factor"], it["arm"]) != (factor, arm) or it["ratio"] is None:
                continue
            place = levels.index(it["level"]) + shift
            draw_interval(
                axis,
                Interval(it["ratio"], it["ratio_low"], it["ratio_high"]),
                place,
                limits=limits,
                shade=colour(found, arm),
                symbol=marker(found, arm),
                upright=True,
            )
            places.append(place)
            values.append(it["ratio"])
        axis.plot(
            places,
            values,
            marker(found, arm),
            color=colour(found, arm),
            linestyle="-",
            linewidth=0.8,
            markersize=5,
            label=arm,
        )
    axis.set_xticks(range(len(levels)), levels, fontsize=7.5)
    axis.set_xlim(-0.5, len(levels) - 0.5)
    axis.grid(axis="x", visible=False)


def pair_map(found: Results, first: str, second: str) -> Figure:
    """Draw the better arm of a pair at every point, classes below each other.

    The first two factors span a panel. The last of the others varies over its columns,
    The first two factors span a panel. The last of the others varies over its columns,
    """
    factors, classes = factors_of(found), _class_names(found)
    names = list(factors)
    down, rest = names[1] if len(names) > 1 else None, names[2:]
    rows = math.prod(len(factors[name]) for name in rest[:-1])
    panel = 0.42 + 0.26 * (len(factors[down]) if down else 1)
    figure = new_figure(0.6 + len(classes) * (0.6 + rows * panel))
    parts = figure.subfigures(len(classes), 1, squeeze=False, hspace=0.04)
    metric = found["primary"]["metric"]
    for part, name in zip(parts.flat, classes, strict=True):
        cells = [
            it
            for it in found["pairs"]
            if (it["first"], it["second"], it["metric"], it["class"])
            == (first, second, metric, name)
        ]
        title = f"{name}: {metric_label(found, metric)}"
        part.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        _map_of_class(part, found, cells)
    _map_legend(figure, found, first, second)
    return figure


def _map_of_class(part: SubFigure, found: Results, cells: Sequence[Pair]) -> None:
    """Draw a class's panels, with common levels at the margins."""
    factors = factors_of(found)
    names = list(factors)
    across, down, rest = names[0], names[1] if len(names) > 1 else None, names[2:]
    levels = {it["point"]: it["levels"] for it in found["points"]}
    columns = factors[rest[-1]] if rest else [""]
    rows = list(itertools.product(*(factors[name] for name in rest[:-1])))
    axes = part.subplots(len(rows), len(columns), squeeze=False)
    for (y, row), (x, column) in itertools.product(enumerate(rows), enumerate(columns)):
        panel = dict(zip(rest, (*row, column), strict=False))
        chosen = [
            cell for cell in cells if panel.items() <= levels[cell["point"]].items()
        ]
        axis = axes[y, x]
        _map_panel(axis, chosen, found, across, down)
        if y == 0 and rest:
            axis.set_title(f"{rest[-1]} {column}", fontsize=8.5, fontweight="normal")
        if y == len(rows) - 1:
            axis.set_xlabel(across, fontsize=8)
        if x == 0 and down:
            axis.set_ylabel(down, fontsize=8)
        if x == len(columns) - 1 and row:
            levels_here = "\n".join(f"{k} {v}" for k, v in zip(rest, row, strict=False))
            axis.text(
                1.03,
                0.5,
                levels_here,
                fontsize=8.5,
                va="center",
                transform=axis.transAxes,
            )


def _map_panel(
    axis: Axes,
    cells: Sequence[Pair],
    found: Results,
    across: str,
    down: str | None,
) -> None:
    factors = factors_of(found)
    levels = {it["point"]: it["levels"] for it in found["points"]}
    columns = list(factors[across])
    rows = list(factors[down]) if down else [""]
    for cell in cells:
        at = levels[cell["point"]]
        if at.get(across) not in columns or (down and at.get(down) not in rows):
            continue
        x = columns.index(at[across])
        y = rows.index(at[down]) if down else 0
        _map_cell(axis, found, cell, x, y)
    axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axis.set_xticks(range(len(columns)), columns, fontsize=8)
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.tick_params(length=0)
    axis.grid(visible=False)


def _map_cell(axis: Axes, found: Results, cell: Pair, x: int, y: int) -> None:
    winner = _winner(cell)
    decided = winner is not None
    face = "none" if winner is None else _shade(_full(found, winner), cell)
    hatch = "////" if cell["ahead"] == "refused" else None
    axis.add_patch(
        Rectangle(
            (x - 0.47, y - 0.44),
            0.94,
            0.88,
            facecolor=face,
            edgecolor=MUTED,
            linewidth=0.6,
            hatch=hatch,
        )
    )
    if cell["ratio"] is None:
        return
    text = "=" if cell["ahead"] == "same" else ratio(cell["ratio"])
    dark = decided and _strength(cell) > 0.55
    axis.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=8,
        fontweight="bold" if decided else "normal",
        color="#ffffff" if dark else (INK if decided else MUTED),
    )


def _winner(cell: Pair) -> str | None:
    """Return the better arm, None if neither is."""
    names = (cell["first"], cell["second"])
    return cell["ahead"] if cell["ahead"] in names else None


def _strength(cell: Pair) -> float:
    """Return a colour's strength: 0.2 for a ratio near 1, 1 from fourfold on."""
    size = cell["ratio"]
    log = abs(math.log(size)) if size else 9.9
    return 0.2 + 0.8 * min(1.0, log / math.log(_FULL))


def _full(found: Results, arm: str) -> str:
    return _BASELINE if arm == found["baseline"] else colour(found, arm)


def _shade(full: str, cell: Pair) -> str:
    scale = LinearSegmentedColormap.from_list("", ["#ffffff", full])
    return to_hex(scale(_strength(cell)))


def _map_legend(figure: Figure, found: Results, first: str, second: str) -> None:
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=_full(found, first)),
        Rectangle((0, 0), 1, 1, facecolor=_full(found, second)),
        Rectangle((0, 0), 1, 1, facecolor="none", edgecolor=MUTED),
        Rectangle((0, 0), 1, 1, facecolor="none", edgecolor=MUTED, hatch="////"),
    ]
    labels = [
        f"{first} better",
        f"{second} better",
        "not significant, or = (equivalent)",
        "refused",
    ]
    figure.legend(handles, labels, loc="outside upper left", ncols=4)
