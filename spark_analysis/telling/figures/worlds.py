"""Two worlds in one picture: the ratio to the baseline in each, arm by arm."""

from __future__ import annotations

from matplotlib.figure import Figure

from spark_analysis.judging.worlds import Worlds
from spark_analysis.telling.figures.interval_bars import draw_interval, limits_of
from spark_analysis.telling.figures.style import (
    INK,
    MUTED,
    colour,
    new_figure,
    plain_log_axis,
)

_APART = 0.17


def worlds_forest(worlds: Worlds, world: str) -> Figure:
    """Draw the headline ratio of every class and arm in the witness and in ``world``.

    The witness is the circle above, the other world the diamond below.
    """
    comparison, metric = worlds.witness.comparisons[0], worlds.witness.headline
    cells = [
        it
        for it in worlds.beside(world)
        if it.point == comparison.manifest.point.name
        and it.witness.metric.name == metric.name
        and it.witness.arm in comparison.rivals
    ]
    figure = new_figure(0.9 + 0.34 * len(cells))
    axis = figure.subplots()
    axis.axvline(1, color=INK, linewidth=0.8)
    pairs = [(it.witness.shown_contrast, it.other.shown_contrast) for it in cells]
    limits = limits_of(of.ratio for pair in pairs for of in pair if of)
    for place, (cell, pair) in enumerate(zip(cells, pairs, strict=True)):
        shade = colour(comparison, cell.witness.arm)
        for contrast, symbol, aside in zip(pair, "oD", (-_APART, _APART), strict=True):
            if contrast is not None:
                draw_interval(
                    axis,
                    contrast.ratio,
                    place + aside,
                    limits=limits,
                    shade=shade,
                    symbol=symbol,
                )
            else:
                axis.annotate("not shown", (1, place + aside), color=MUTED, fontsize=8)
    names = [f"{it.witness.class_name} · {it.witness.arm}" for it in cells]
    axis.set_yticks(range(len(cells)), names)
    there = worlds.witness.manifest
    axis.set(
        xscale="log",
        xlabel=f"{metric.label} / {there.baseline}'s: circles {there.world}, "
        f"diamonds {world}",
        ylim=(len(cells) - 0.4, -0.6),
    )
    axis.grid(axis="y", visible=False)
    plain_log_axis(axis, "x")
    return figure
