"""Arms against the baseline: a forest of ratios, and every block by itself."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.comparison import Cell, Comparison
from spark_analysis.figures.style import (
    INK,
    MUTED,
    colour,
    marker,
    new_figure,
    plain_log_axis,
)

COLUMNS = 4
# An interval without an end is drawn up to here.
RATIO_MIN, RATIO_MAX = 1e-3, 1e3


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
        for place, (name, arm) in enumerate(rows):
            _ratio(axis, comparison, comparison.cell(name, arm, metric.name), place)
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


def _ratio(axis: Axes, comparison: Comparison, cell: Cell, place: int) -> None:
    if cell.refused or cell.contrast is None:
        axis.annotate(
            "not shown",
            (1, place),
            xycoords="data",
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
            fontsize=8,
        )
        return
    decided = cell.verdict.word != "inconclusive"
    shade = colour(comparison, cell.arm) if decided else MUTED
    value, low, high = (clamp(ratio) for ratio in cell.contrast.ratio)
    axis.plot((low, high), (place, place), color=shade, linewidth=2.4, alpha=0.5)
    axis.plot(value, place, marker(comparison, cell.arm), color=shade, markersize=6)


def clamp(ratio: float) -> float:
    """Return a ratio that can be drawn."""
    return min(max(ratio, RATIO_MIN), RATIO_MAX)


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
            if run.class_name == name and math.isfinite(run.values[metric]):
                by_block.setdefault(run.block, {})[run.arm] = run.values[metric]
        for values in by_block.values():
            shown = [(place, arm) for place, arm in enumerate(arms) if arm in values]
            axis.plot(
                [place for place, _ in shown],
                [values[arm] for _, arm in shown],
                color=MUTED,
                linewidth=0.7,
                alpha=0.8,
            )
            for place, arm in shown:
                axis.plot(
                    place,
                    values[arm],
                    marker(comparison, arm),
                    color=colour(comparison, arm),
                    markersize=4,
                    alpha=0.85,
                )
        axis.set(yscale="log", title=name, xlim=(-0.5, len(arms) - 0.5))
        axis.set_xticks(range(len(arms)), arms, rotation=40, ha="right")
        axis.grid(axis="x", visible=False)
        plain_log_axis(axis, "y")
    for axis in panels[len(names) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"{comparison.headline.label} of one run [ms]")
    return figure
