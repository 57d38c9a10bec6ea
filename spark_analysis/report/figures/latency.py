"""Latency distributions: the CCDF of each class, all arms in one panel."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from spark_analysis.report.content.schema import Curve, Results
from spark_analysis.report.content.tables import metric_label
from spark_analysis.report.figures.style import (
    MUTED,
    colour,
    dash,
    legend,
    log_scale,
    new_figure,
    plain,
    plain_log_axis,
)

# Share of requests at the left end of a curve.
_MOST: Final = 0.99


def exceedance_curves(found: Results, world: str, point: str) -> Figure:
    """Draw the CCDF of every class in one world at one point."""
    curves = [c for c in found["curves"] if (c["world"], c["point"]) == (world, point)]
    names = list(dict.fromkeys(curve["class"] for curve in curves))
    columns = len(names) if len(names) <= 3 else 2
    rows = math.ceil(len(names) / columns)
    figure = new_figure(0.6 + (2.7 if rows == 1 else 2.35) * rows)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(axes.flat)
    for axis, name in zip(panels, names, strict=False):
        for curve in curves:
            if curve["class"] == name:
                _curve(axis, found, curve)
        _quantile_line(axis, found)
        axis.set_title(name)
    log_scale(panels[0], "x", "y")
    for axis in panels[: len(names)]:
        axis.yaxis.set_major_formatter(FuncFormatter(_share))
    for axis in panels[len(names) :]:
        axis.set_visible(False)
    panels[0].set_xlim(left=_left_edge(curves))
    plain_log_axis(panels[0], "x")
    for axis in axes[:, 0]:
        axis.set_ylabel("share of requests slower")
    for axis in panels[max(0, len(names) - columns) : len(names)]:
        axis.set_xlabel("latency [ms]")
        axis.tick_params(labelbottom=True)
    legend(figure, panels[0], [arm["name"] for arm in found["arms"]])
    return figure


def _left_edge(curves: list[Curve]) -> float:
    """Return the end of the fastest hundredth: left of it all curves are flat."""
    edges = []
    for curve in curves:
        latency, share = np.array(curve["latency_ms"]), np.array(curve["share"])
        if (shown := (share <= _MOST) & (latency > 0)).any():
            edges.append(float(latency[shown][0]))
    return min(edges, default=0.01) / 1.5


def _quantile_line(axis: Axes, found: Results) -> None:
    name = found["primary"]["metric"]
    quantile = next(it["quantile"] for it in found["metrics"] if it["name"] == name)
    if quantile is None:
        return
    axis.axhline(1 - quantile, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.annotate(
        metric_label(found, name),
        (1, 1 - quantile),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        color=MUTED,
        fontsize=8,
    )


def _curve(axis: Axes, found: Results, curve: Curve) -> None:
    """Draw a curve in its band; faint where its share may be zero."""
    latency, share = np.array(curve["latency_ms"]), np.array(curve["share"])
    low, high = np.array(curve["low"]), np.array(curve["high"])
    shade = colour(found, curve["arm"])
    floor = float(share.min(initial=1.0)) / 2
    axis.fill_between(
        latency,
        np.maximum(low, floor),
        np.maximum(high, floor),
        step="pre",
        color=shade,
        alpha=0.13,
        linewidth=0,
    )
    known = low > 0
    for part, alpha in ((known, 1.0), (~known, 0.35)):
        axis.plot(
            latency,
            np.where(part, share, np.nan),
            color=shade,
            linestyle=dash(found, curve["arm"]),
            label=curve["arm"] if alpha == 1.0 else None,
            alpha=alpha,
            drawstyle="steps-pre",
        )


def _share(value: float, _: int) -> str:
    return f"{plain(value * 100)} %"
