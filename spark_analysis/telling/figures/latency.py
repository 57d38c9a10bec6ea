"""Latency drawn: the tail of each class, and its headline quantile with an interval."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from spark_analysis.comparison import Comparison
from spark_analysis.figures.style import (
    MUTED,
    colour,
    dash,
    legend,
    marker,
    new_figure,
    plain,
    plain_log_axis,
)

# The share of requests that a curve shows on its left.
_MOST = 0.99


def exceedance_curves(comparison: Comparison) -> Figure:
    """Draw the CCDF of every class, one panel each, all arms in it."""
    names = comparison.class_names
    columns = len(names) if len(names) <= 3 else 2
    rows = math.ceil(len(names) / columns)
    figure = new_figure(0.6 + (2.7 if rows == 1 else 2.35) * rows)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(axes.flat)
    for axis, name in zip(panels, names, strict=False):
        _curves(axis, comparison, name)
    for axis in panels[len(names) :]:
        axis.set_visible(False)
    panels[0].set_xlim(left=_left_edge(comparison))
    plain_log_axis(panels[0], "x")
    for axis in axes[:, 0]:
        axis.set_ylabel("share of requests slower")
    for axis in panels[max(0, len(names) - columns) : len(names)]:
        axis.set_xlabel("latency [ms]")
        axis.tick_params(labelbottom=True)
    legend(figure, panels[0], comparison.arm_names)
    return figure


def _left_edge(comparison: Comparison) -> float:
    """Return where the fastest hundredth ends: left of it all curves are flat."""
    edges = [
        float(curve.latency_ms[curve.share <= _MOST][0])
        for curve in comparison.curves
        if (curve.share <= _MOST).any()
    ]
    return min(edges, default=0.01) / 1.5


def _curves(axis: Axes, comparison: Comparison, class_name: str) -> None:
    for curve in comparison.curves:
        if curve.class_name != class_name:
            continue
        axis.plot(
            curve.latency_ms,
            curve.share,
            color=colour(comparison, curve.arm),
            linestyle=dash(comparison, curve.arm),
            label=curve.arm,
            drawstyle="steps-pre",
        )
    level = comparison.headline.level
    assert level is not None
    axis.axhline(float(1 - level), color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.annotate(
        comparison.headline.label,
        (1, float(1 - level)),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        color=MUTED,
        fontsize=8,
    )
    axis.set(xscale="log", yscale="log", title=class_name)
    axis.yaxis.set_major_formatter(FuncFormatter(_share))


def _share(value: float, _: int) -> str:
    return f"{plain(value * 100)} %"


def quantiles(comparison: Comparison) -> Figure:
    """Draw the headline quantile of every class and arm with its interval."""
    names = comparison.class_names
    arms = comparison.arm_names
    figure = new_figure(0.7 + len(names) * (0.35 + 0.24 * len(arms)))
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=True):
        for place, arm in enumerate(arms):
            _dot(axis, comparison, name, arm, place)
        axis.set(xscale="log", title=name, ylim=(len(arms) - 0.4, -0.6))
        axis.set_yticks(range(len(arms)), arms)
        axis.grid(axis="y", visible=False)
        plain_log_axis(axis, "x")
    axes.flat[-1].set_xlabel(f"{comparison.headline.label} latency [ms]")
    return figure


def _dot(
    axis: Axes, comparison: Comparison, class_name: str, arm: str, place: int
) -> None:
    cell = comparison.cell(class_name, arm, comparison.headline.name)
    if cell.refused:
        axis.text(
            0.01,
            place,
            "not shown: the tail is too thin",
            transform=axis.get_yaxis_transform(),
            va="center",
            color=MUTED,
            fontsize=8,
        )
        return
    value, low, high = cell.measured.estimate
    shade = colour(comparison, arm)
    ends = (max(low, value / 100), min(high, value * 100))
    axis.plot(ends, (place, place), color=shade, linewidth=2.4, alpha=0.45)
    axis.plot(value, place, marker(comparison, arm), color=shade, markersize=6)
