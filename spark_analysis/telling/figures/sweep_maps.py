"""A sweep drawn: ratios by factor level, and a map of who is ahead where."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from spark_analysis.judging.pairs import Pair, PairCell
from spark_analysis.judging.study import Study
from spark_analysis.telling.figures.interval_bars import draw_interval, limits_of
from spark_analysis.telling.figures.style import (
    INK,
    MUTED,
    colour,
    legend,
    marker,
    new_figure,
    plain_log_axis,
)
from spark_analysis.telling.sentences.numbers import ratio

_FIRST: Final = "#0072b2"
_SECOND: Final = "#d55e00"
# A ratio of this size, either way, has the full colour.
_FULL: Final = 4.0


def by_level(study: Study) -> Figure:
    """Draw one panel per class and factor: levels across, an interval per arm."""
    names, factors = study.class_names, study.factors
    figure = new_figure(0.7 + 2.0 * len(names))
    axes = figure.subplots(len(names), len(factors), sharey="row", squeeze=False)
    for row, name in zip(axes, names, strict=True):
        for axis, factor in zip(row, factors, strict=True):
            _level_panel(axis, study, name, factor)
        row[0].set_ylabel(f"{name}: {study.headline.label} ratio")
        plain_log_axis(row[0], "y")
    for axis, factor in zip(axes[-1], factors, strict=True):
        axis.set_xlabel(factor)
    legend(figure, axes[0, 0], study.manifest.rivals)
    return figure


def _level_panel(axis: Axes, study: Study, class_name: str, factor: str) -> None:
    levels, rivals = study.factors[factor], study.manifest.rivals
    shown = study.comparisons[0]
    axis.axhline(1, color=INK, linewidth=0.8)
    axis.set_yscale("log")
    limits = limits_of(
        found.ratio
        for found in study.levels
        if found.class_name == class_name and found.ratio
    )
    for rank, arm in enumerate(rivals):
        shift = (rank - (len(rivals) - 1) / 2) * 0.5 / max(len(rivals), 1)
        places, values = [], []
        for found in study.levels:
            if (found.factor, found.class_name, found.arm) != (factor, class_name, arm):
                continue
            if found.ratio is None:
                continue
            place = levels.index(found.level) + shift
            draw_interval(
                axis,
                found.ratio,
                place,
                limits=limits,
                shade=colour(shown, arm),
                symbol=marker(shown, arm),
                upright=True,
            )
            places.append(place)
            values.append(found.ratio.value)
        axis.plot(
            places,
            values,
            marker(shown, arm),
            color=colour(shown, arm),
            linestyle="-",
            linewidth=0.8,
            markersize=5,
            label=arm,
        )
    axis.set_xticks(range(len(levels)), levels, fontsize=7.5)
    axis.set_xlim(-0.5, len(levels) - 0.5)
    axis.grid(axis="x", visible=False)


def pair_map(study: Study, pair: Pair) -> Figure:
    """Draw who is ahead at every point, classes below each other.

    The first two factors span a panel. The last of the others tells its columns apart,
    and each combination of the rest has a row of panels.
    """
    factors = study.factors
    names = list(factors)
    down, rest = names[1] if len(names) > 1 else None, names[2:]
    rows = math.prod(len(factors[name]) for name in rest[:-1])
    panel = 0.42 + 0.26 * (len(factors[down]) if down else 1)
    figure = new_figure(0.6 + len(study.class_names) * (0.6 + rows * panel))
    parts = figure.subfigures(len(study.class_names), 1, squeeze=False, hspace=0.04)
    for part, name in zip(parts.flat, study.class_names, strict=True):
        cells = [
            cell
            for cell in study.pairs
            if (cell.pair, cell.metric, cell.class_name) == (pair, study.headline, name)
        ]
        title = f"{name}: {study.headline.label}"
        part.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        _map_of_class(part, study, cells)
    _map_legend(figure, pair)
    return figure


def _map_of_class(part: SubFigure, study: Study, cells: Sequence[PairCell]) -> None:
    """Draw a class's panels, with what they have in common told at the margins."""
    factors, names = study.factors, list(study.factors)
    across, down, rest = names[0], names[1] if len(names) > 1 else None, names[2:]
    levels = {point.name: point.levels for point in study.manifest.points}
    columns = factors[rest[-1]] if rest else [""]
    rows = list(itertools.product(*(factors[name] for name in rest[:-1])))
    axes = part.subplots(len(rows), len(columns), squeeze=False)
    for (y, row), (x, column) in itertools.product(enumerate(rows), enumerate(columns)):
        panel = dict(zip(rest, (*row, column), strict=False))
        chosen = [cell for cell in cells if panel.items() <= levels[cell.point].items()]
        axis = axes[y, x]
        _map_panel(axis, chosen, levels, factors, across, down)
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
    cells: Sequence[PairCell],
    levels: Mapping[str, Mapping[str, str]],
    factors: Mapping[str, Sequence[str]],
    across: str,
    down: str | None,
) -> None:
    columns = list(factors[across])
    rows = list(factors[down]) if down else [""]
    for cell in cells:
        at = levels[cell.point]
        if at.get(across) not in columns or (down and at.get(down) not in rows):
            continue
        x = columns.index(at[across])
        y = rows.index(at[down]) if down else 0
        _map_cell(axis, cell, x, y)
    axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axis.set_xticks(range(len(columns)), columns, fontsize=8)
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.tick_params(length=0)
    axis.grid(visible=False)


def _map_cell(axis: Axes, cell: PairCell, x: int, y: int) -> None:
    decided = cell.winner in ("first", "second")
    face = _shade(cell) if decided else "none"
    hatch = "////" if cell.winner == "refused" else None
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
    if cell.ratio is None:
        return
    text = "=" if cell.winner == "same" else ratio(cell.ratio.value)
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


def _strength(cell: PairCell) -> float:
    """Return how strong a colour is: 0.2 for a ratio near 1, 1 from fourfold on."""
    assert cell.ratio is not None
    log = abs(math.log(cell.ratio.value)) if 0 < cell.ratio.value < math.inf else 9.9
    return 0.2 + 0.8 * min(1.0, log / math.log(_FULL))


def _shade(cell: PairCell) -> str:
    full = _FIRST if cell.winner == "first" else _SECOND
    scale = LinearSegmentedColormap.from_list("", ["#ffffff", full])
    return to_hex(scale(_strength(cell)))


def _map_legend(figure: Figure, pair: Pair) -> None:
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=_FIRST),
        Rectangle((0, 0), 1, 1, facecolor=_SECOND),
        Rectangle((0, 0), 1, 1, facecolor="none", edgecolor=MUTED),
        Rectangle((0, 0), 1, 1, facecolor="none", edgecolor=MUTED, hatch="////"),
    ]
    labels = [
        f"{pair[0]} ahead",
        f"{pair[1]} ahead",
        "undecided, or = (same)",
        "not shown",
    ]
    figure.legend(handles, labels, loc="outside upper left", ncols=4)
