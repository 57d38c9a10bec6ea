"""Latency drawn: the tail of each class, and its headline quantile with an interval."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from spark_analysis.judging.comparison import Comparison, Curve
from spark_analysis.telling.figures.interval_bars import draw_interval, limits_of
from spark_analysis.telling.figures.style import (
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
        _curve(axis, comparison, curve)
    quantile = comparison.headline.quantile
    assert quantile is not None
    axis.axhline(float(1 - quantile), color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.annotate(
        comparison.headline.label,
        (1, float(1 - quantile)),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        color=MUTED,
        fontsize=8,
    )
    axis.set(xscale="log", yscale="log", title=class_name)
    axis.yaxis.set_major_formatter(FuncFormatter(_share))


def _curve(axis: Axes, comparison: Comparison, curve: Curve) -> None:
    """Draw a curve in its band; faint where its share may as well be none."""
    shade = colour(comparison, curve.arm)
    floor = float(curve.share.min(initial=1.0)) / 2
    axis.fill_between(
        curve.latency_ms,
        np.maximum(curve.low, floor),
        np.maximum(curve.high, floor),
        step="pre",
        color=shade,
        alpha=0.13,
        linewidth=0,
    )
    known = curve.low > 0
    for part, alpha in ((known, 1.0), (~known, 0.35)):
        axis.plot(
            curve.latency_ms,
            np.where(part, curve.share, np.nan),
            color=shade,
            linestyle=dash(comparison, curve.arm),
            label=curve.arm if alpha == 1.0 else None,
            alpha=alpha,
            drawstyle="steps-pre",
        )


def _share(value: float, _: int) -> str:
    return f"{plain(value * 100)} %"


def quantiles(comparison: Comparison) -> Figure:
    """Draw the headline quantile of every class and arm with its interval."""
    names = comparison.class_names
    arms = comparison.arm_names
    figure = new_figure(0.7 + len(names) * (0.35 + 0.24 * len(arms)))
    metric = comparison.headline
    shown = [cell.estimate for cell in comparison.cells if cell.metric == metric]
    limits = limits_of(estimate for estimate in shown if estimate)
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=True):
        for place, arm in enumerate(arms):
            _dot(axis, comparison, name, arm, place, limits)
        axis.set(xscale="log", title=name, ylim=(len(arms) - 0.4, -0.6))
        axis.set_yticks(range(len(arms)), arms)
        axis.grid(axis="y", visible=False)
        plain_log_axis(axis, "x")
    axes.flat[-1].set_xlabel(f"{comparison.headline.label} latency [ms]")
    return figure


def _dot(
    axis: Axes,
    comparison: Comparison,
    class_name: str,
    arm: str,
    place: int,
    limits: tuple[float, float],
) -> None:
    cell = comparison.cell(class_name, arm, comparison.headline.name)
    if cell.estimate is None:
        lost = math.isinf(cell.measured.estimate.value)
        axis.text(
            0.01,
            place,
            "none: too many requests got no answer"
            if lost
            else "not shown: the tail is too thin",
            transform=axis.get_yaxis_transform(),
            va="center",
            color=MUTED,
            fontsize=8,
        )
        return
    draw_interval(
        axis,
        cell.estimate,
        place,
        limits=limits,
        shade=colour(comparison, arm),
        symbol=marker(comparison, arm),
    )
