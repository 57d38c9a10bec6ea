"""What changes with time: the request queue within a run, the machine between runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from spark_analysis.judging.comparison import Comparison
from spark_analysis.recordings.contract import Run
from spark_analysis.recordings.machine_speed import loop_ns
from spark_analysis.telling.figures.style import (
    INK,
    MUTED,
    colour,
    legend,
    marker,
    new_figure,
    plain_log_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def queue(comparison: Comparison) -> Figure:
    """Draw the queue of every arm, one panel each on the same scales."""
    arms = comparison.arm_names
    figure = new_figure(0.6 + 1.15 * len(arms))
    axes = figure.subplots(len(arms), 1, sharex=True, sharey=True, squeeze=False)
    for axis, arm in zip(axes.flat, arms, strict=True):
        points = [point for point in comparison.queue if point.arm == arm]
        times = [point.t_s for point in points]
        shade = colour(comparison, arm)
        axis.fill_between(
            times,
            [point.queued_low for point in points],
            [point.queued_high for point in points],
            color=shade,
            alpha=0.18,
            linewidth=0,
        )
        axis.plot(times, [point.queued for point in points], color=shade)
        axis.plot(
            times,
            [point.waiting for point in points],
            color=shade,
            linestyle=(0, (3, 2)),
            linewidth=1.0,
        )
        for edge in comparison.manifest.window_ns:
            axis.axvline(edge / 1e9, color=MUTED, linewidth=0.7)
        axis.set_title(arm)
        axis.set_ylim(bottom=0)
    axes.flat[-1].set_xlabel("time in the run [s]; vertical rules bound the window")
    figure.supylabel("requests", fontsize=9.5)
    return figure


def speed(comparison: Comparison) -> Figure:
    """Draw the time of the fixed loop for every episode or run, in their order.

    Below it, where it is known, what its requests cost beside the baseline's of the
    same round or block.
    """
    runs = [run for run in comparison.manifest.runs if run.probes_ns]
    costs = comparison.paired_costs
    figure = new_figure(5.2 if costs else 2.9)
    panels = figure.subplots(2 if costs else 1, 1, sharex=True, squeeze=False).flat
    _loops(figure, panels[0], runs)
    if costs:
        _costs(comparison, panels[1], runs)
    unit = "run" if comparison.manifest.episodes is None else "episode"
    panels[-1].set_xlabel(f"{unit}, in order of execution")
    return figure


def _loops(figure: Figure, axis: Axes, runs: Sequence[Run]) -> None:
    times = [loop_ns(run) for run in runs]
    middle = statistics.median(times)
    for kept, mark, shade in ((True, ".", MUTED), (False, "x", INK)):
        places = [n for n, run in enumerate(runs) if run.valid == kept]
        axis.plot(
            [place + 1 for place in places],
            [times[place] / middle for place in places],
            mark,
            color=shade,
            markersize=3,
            alpha=0.7,
            label="counts" if kept else "does not count",
        )
    axis.axhline(1, color=MUTED, linewidth=0.8)
    axis.set(yscale="log", ylabel="time of the loop / median")
    plain_log_axis(axis, "y")
    legend(figure, axis, ("counts", "does not count"))


def _costs(comparison: Comparison, axis: Axes, runs: Sequence[Run]) -> None:
    places = {
        (run.block, run.arm): place
        for place, run in enumerate(runs, start=1)
        if run.valid
    }
    for of in comparison.paired_costs:
        timed = [block for block in of.ratios if (block, of.arm) in places]
        axis.plot(
            [places[block, of.arm] for block in timed],
            [of.ratios[block] for block in timed],
            marker(comparison, of.arm),
            color=colour(comparison, of.arm),
            markersize=2.5,
            alpha=0.7,
            label=of.arm,
        )
    band = comparison.manifest.speed_band
    edges = () if band is None else (1 / band, band)
    for edge in edges:
        axis.axhline(edge, color=MUTED, linewidth=0.7, linestyle=(0, (3, 2)))
    axis.axhline(1, color=MUTED, linewidth=0.8)
    axis.set(
        yscale="log",
        ylabel=f"cost of requests / {comparison.manifest.baseline}'s",
    )
    plain_log_axis(axis, "y")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=6)


def drift(comparison: Comparison) -> Figure:
    """Draw every run against its own arm's median, in order of execution."""
    metric = comparison.headline.name
    first = comparison.class_names[0]
    order = {
        (run.block, run.arm): number
        for number, run in enumerate(comparison.manifest.runs, start=1)
        if run.valid
    }
    figure = new_figure(2.9)
    axis = figure.subplots()
    for arm in comparison.arm_names:
        runs = [
            (order[run.block, run.arm], run.values[metric])
            for run in comparison.run_values
            if run.arm == arm
            and run.class_name == first
            and math.isfinite(run.values[metric])
        ]
        if not runs:
            continue
        middle = statistics.median(value for _, value in runs)
        axis.plot(
            [number for number, _ in runs],
            [value / middle for _, value in runs],
            marker(comparison, arm),
            color=colour(comparison, arm),
            markersize=5,
            alpha=0.85,
            label=arm,
        )
    axis.axhline(1, color=MUTED, linewidth=0.8)
    axis.set(
        yscale="log",
        xlabel="run, in order of execution",
        ylabel=f"{first} {comparison.headline.label} / arm's median",
    )
    plain_log_axis(axis, "y")
    legend(figure, axis, comparison.arm_names)
    return figure
