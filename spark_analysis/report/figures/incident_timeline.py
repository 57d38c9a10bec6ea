"""Election panel: one incident under every arm, in every world.

A row per arm, a column per world, a lane per outcome of a write. Shading marks the time
in which two brokers believed that they led the same partition.
"""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.incidents.incident import LANES
from spark_analysis.report.content.schema import Results, Timeline
from spark_analysis.report.figures.style import INK, MUTED, new_figure

_COLOURS = {
    "accepted": MUTED,
    "in vain": "#d55e00",
    "by the new leader": "#0072b2",
    "not leader": "#e69f00",
    "timed out": "#cc79a7",
}
_BEFORE_MS = 0.2
# Length of a panel relative to the longest incident, and the longest panel.
_AFTER, _LONGEST_MS = 1.5, 4000.0


def timelines(found: Results) -> Figure:
    """Draw one incident of each world, an axis for each arm that all worlds have.

    Each column has one time scale, because machines differ.
    """
    assert "election" in found
    shown: dict[str, dict[str, Timeline]] = {}
    for line in found["election"]["timelines"]:
        shown.setdefault(line["world"], {})[line["arm"]] = line
    arms = [
        arm["name"]
        for arm in found["arms"]
        if arm["name"] != found["again"]
        and all(arm["name"] in of for of in shown.values())
    ]
    figure = new_figure(0.9 + 0.95 * len(arms))
    axes = figure.subplots(
        len(arms), len(shown), sharex="col", sharey=True, squeeze=False
    )
    for (name, of_world), column in zip(shown.items(), axes.T, strict=True):
        until_ms = _until_ms([of_world[arm] for arm in arms])
        world = f", {name}" if len(shown) > 1 else ""
        for arm, axis in zip(arms, column, strict=True):
            _draw(axis, of_world[arm], until_ms)
            axis.set_title(f"{arm}{world}")
        column[-1].set_xlim(-_BEFORE_MS * until_ms, until_ms)
        column[-1].set_xlabel("milliseconds since the controller's decision")
    return figure


def _draw(axis: Axes, timeline: Timeline, until_ms: float) -> None:
    for number, lane in enumerate(LANES):
        axis.eventplot(
            timeline["lanes"][lane],
            lineoffsets=-number,
            linelengths=0.8,
            linewidths=0.5,
            colors=_COLOURS[lane],
            # Thousands of vector paths would need megabytes.
            rasterized=True,
        )
    obeyed_ms = max(timeline["obeyed_ms"], default=math.inf)
    axis.axvspan(0, min(obeyed_ms, until_ms), color=INK, alpha=0.08, linewidth=0)
    axis.axvline(0, color=INK, linewidth=0.8)
    if timeline["writable_ms"] is not None:
        axis.axvline(timeline["writable_ms"], color="#009e73", linewidth=1.2)
    axis.set_ylim(0.6 - len(LANES), 0.6)
    axis.set_yticks([-n for n in range(len(LANES))], LANES, fontsize=6.5)
    axis.grid(visible=False, axis="y")


def _until_ms(shown: list[Timeline]) -> float:
    ends = [end for it in shown for end in (*it["obeyed_ms"], it["writable_ms"] or 0.0)]
    return min(_LONGEST_MS, max(100.0, _AFTER * max(ends)))
