"""Arms against the baseline: a forest of ratios, and every block by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.telling.figures.interval_bars import draw_interval, limits_of
from spark_analysis.telling.figures.style import (
    INK,
    MUTED,
    colour,
    marker,
    new_figure,
    plain_log_axis,
)

COLUMNS = 4


def forest(comparison: Comparison) -> Figure:
    """Draw the ratio to the baseline, classes as groups, arms as rows."""
    arms = [arm for arm in comparison.arm_names if arm != comparison.manifest.baseline]
    rows = [(name, arm) for name in comparison.class_names for arm in arms]
    figure = new_figure(0.9 + 0.26 * len(rows) + 0.2 * len(comparison.class_names))
    axes = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2), squeeze=False)[0]
    metrics = (comparison.headline, comparison.metrics[-1])
    for axis, metric in zip(axes, metrics, strict=True):
        margin = math.log1p(metric.margin)
        axis.axvspan(math.exp(-margin), math.exp(margin), color=MUTED, alpha=0.25, lw=0)
        axis.axvline(1, color=INK, linewidth=0.8)
        cells = [comparison.cell(name, arm, metric.name) for name, arm in rows]
        limits = limits_of(
            cell.shown_contrast.ratio for cell in cells if cell.shown_contrast
        )
        for place, cell in enumerate(cells):
            _ratio(axis, comparison, cell, place, limits)
        for group in range(1, len(comparison.class_names)):
            axis.axhline(group * len(arms) - 0.5, color=MUTED, linewidth=0.5)
        better = "left is faster" if metric.lower_is_better else "right is more"
        axis.set(
            xscale="log",
            xlabel=f"{metric.label} / {comparison.manifest.baseline}'s ({better})",
            ylim=(len(rows) - 0.4, -0.6),
        )
        axis.grid(axis="y", visible=False)
        _keep_one_in_sight(axis)
        plain_log_axis(axis, "x")
    axes[0].set_yticks(range(len(rows)), [f"{name} · {arm}" for name, arm in rows])
    return figure


def _ratio(
    axis: Axes,
    comparison: Comparison,
    cell: Cell,
    place: int,
    limits: tuple[float, float],
) -> None:
    if cell.shown_contrast is None:
        axis.annotate(
            "not shown" if cell.refused else "not compared",
            (1, place),
            xycoords="data",
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
            fontsize=8,
        )
        return
    draw_interval(
        axis,
        cell.shown_contrast.ratio,
        place,
        limits=limits,
        shade=colour(comparison, cell.arm) if cell.decided else MUTED,
        symbol=marker(comparison, cell.arm),
    )


def _keep_one_in_sight(axis: Axes) -> None:
    """Leave room around 1 even where all ratios are within a thousandth of it."""
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.9), max(high, 1.12))


def block_lines(comparison: Comparison) -> Figure:
    """Draw every run's headline quantile, runs of one block joined by a line."""
    names, arms = comparison.class_names, comparison.arm_names
    metric = comparison.headline.name
    columns = min(COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    figure = new_figure(0.4 + 2.9 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    panels = list(axes.flat)
    for axis, name in zip(panels, names, strict=False):
        by_block: dict[int, dict[str, float]] = {}
        for run in comparison.run_values:
            if run.class_name == name:
                by_block.setdefault(run.block, {})[run.arm] = run.values[metric]
        for values in by_block.values():
            _block(axis, comparison, values)
        axis.set(yscale="log", title=name, xlim=(-0.5, len(arms) - 0.5))
        axis.set_xticks(range(len(arms)), arms, rotation=40, ha="right")
        axis.grid(axis="x", visible=False)
        plain_log_axis(axis, "y")
    for axis in panels[len(names) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"{comparison.headline.label} of one run [ms]")
    return figure


def _block(axis: Axes, comparison: Comparison, values: Mapping[str, float]) -> None:
    """Draw one block's runs, by arm; an infinite value is a triangle at the top."""
    places = {arm: place for place, arm in enumerate(comparison.arm_names)}
    finite = {arm: value for arm, value in values.items() if math.isfinite(value)}
    drawn = sorted(finite, key=lambda arm: places[arm])
    axis.plot(
        [places[arm] for arm in drawn],
        [finite[arm] for arm in drawn],
        color=MUTED,
        linewidth=0.7,
        alpha=0.8,
    )
    for arm in values:
        shade = colour(comparison, arm)
        if arm in finite:
            symbol = marker(comparison, arm)
            at = axis.transData
        else:
            symbol, at = "^", axis.get_xaxis_transform()
        axis.plot(
            places[arm],
            finite.get(arm, 0.985),
            symbol,
            transform=at,
            color=shade,
            markersize=4,
            alpha=0.85,
        )
