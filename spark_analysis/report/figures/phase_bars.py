"""Mean time by phase as stacked bars: all requests left, the slowest ones right."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.recordings.phases import PHASES
from spark_analysis.report.content.numbers import digits
from spark_analysis.report.content.schema import Phases, Results
from spark_analysis.report.figures.style import new_figure

# Waiting for admission in warm colours, the queue in blue, work in green, the response
# in greys. Ten colours cannot all be distinguished; those of neighbours can.
_COLOURS: Final = {
    "client_ns": "#b9bcc4",
    "unread_ns": "#f0e442",
    "blocked_ns": "#e69f00",
    "queue_ns": "#0072b2",
    "local_ns": "#009e73",
    "suspended_ns": "#cc79a7",
    "remote_ns": "#d55e00",
    "response_queue_ns": "#56b4e9",
    "response_send_ns": "#8a8d96",
    "return_ns": "#5f636d",
}


def stacked(found: Results, world: str, point: str) -> Figure:
    """Draw one bar per class and arm in one world at one point."""
    phases = [p for p in found["phases"] if (p["world"], p["point"]) == (world, point)]
    names = list(dict.fromkeys(of["class"] for of in phases))
    arms = [arm["name"] for arm in found["arms"]]
    figure = new_figure(0.9 + len(names) * (0.35 + 0.24 * len(arms)))
    axes = figure.subplots(len(names), 2, sharey=True, squeeze=False)
    for row, name in zip(axes, names, strict=True):
        for axis, slowest in zip(row, (False, True), strict=True):
            chosen = [of for of in phases if of["class"] == name]
            _panel(axis, arms, [of for of in chosen if of["slowest"] == slowest])
        row[0].set_title(name)
    axes[-1, 0].set_xlabel("all answered requests: mean [ms]")
    axes[-1, 1].set_xlabel("slowest requests: mean [ms]")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=5,
        handlelength=1.0,
        columnspacing=1.4,
    )
    return figure


def _panel(axis: Axes, arms: list[str], phases: list[Phases]) -> None:
    by_arm = {of["arm"]: of["means_ms"] for of in phases}
    left = [0.0] * len(arms)
    for phase in PHASES:
        # Two phases end on the other process's stamp and may be slightly negative.
        widths = [max(0.0, by_arm.get(arm, {}).get(phase.name, 0.0)) for arm in arms]
        axis.barh(
            range(len(arms)),
            widths,
            left=left,
            height=0.72,
            color=_COLOURS[phase.name],
            label=phase.label,
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, total in enumerate(left):
        axis.annotate(
            digits(total),
            (total, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.set(ylim=(len(arms) - 0.4, -0.6))
    axis.margins(x=0.1)
    axis.set_yticks(range(len(arms)), arms)
    axis.grid(axis="y", visible=False)
