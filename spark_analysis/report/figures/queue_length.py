"""Request queue over time: one panel per arm on the same scales."""

from __future__ import annotations

from matplotlib.figure import Figure

from spark_analysis.report.content.schema import Results
from spark_analysis.report.figures.style import MUTED, colour, new_figure


def queue_length(found: Results, world: str, point: str) -> Figure:
    """Draw the queue's length, and the requests blocked by a full queue (dashed)."""
    arms = [arm["name"] for arm in found["arms"]]
    window_s = next(w["window_s"] for w in found["worlds"] if w["world"] == world)
    figure = new_figure(0.6 + 1.15 * len(arms))
    axes = figure.subplots(len(arms), 1, sharex=True, sharey=True, squeeze=False)
    for axis, arm in zip(axes.flat, arms, strict=True):
        moments = [
            of
            for of in found["queue"]
            if (of["world"], of["point"], of["arm"]) == (world, point, arm)
        ]
        times = [of["t_s"] for of in moments]
        shade = colour(found, arm)
        axis.fill_between(
            times,
            [of["queued_low"] for of in moments],
            [of["queued_high"] for of in moments],
            color=shade,
            alpha=0.18,
            linewidth=0,
        )
        axis.plot(times, [of["queued"] for of in moments], color=shade)
        waiting = [of["waiting"] for of in moments]
        axis.plot(times, waiting, color=shade, linestyle=(0, (3, 2)), linewidth=1.0)
        for edge in window_s:
            axis.axvline(edge, color=MUTED, linewidth=0.7)
        axis.set_title(arm)
        axis.set_ylim(bottom=0)
    axes.flat[-1].set_xlabel("time in the run [s]; vertical rules bound the window")
    figure.supylabel("requests", fontsize=9.5)
    return figure
