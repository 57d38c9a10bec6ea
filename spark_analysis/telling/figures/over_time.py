"""What changes with time: the request queue within a run, the machine between runs."""

from __future__ import annotations

import math
import statistics

from matplotlib.figure import Figure

from spark_analysis.judging.comparison import Comparison
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
    """Draw the time of the fixed loop around every episode, in order of execution."""
    runs = [run for run in comparison.manifest.runs if run.probes_ns]
    times = [loop_ns(run) for run in runs]
    middle = statistics.median(times)
    figure = new_figure(2.9)
    axis = figure.subplots()
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
    axis.set(
        yscale="log",
        xlabel="episode, in order of execution",
        ylabel="time of the loop / median",
    )
    plain_log_axis(axis, "y")
    legend(figure, axis, ("counts", "does not count"))
    return figure


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
