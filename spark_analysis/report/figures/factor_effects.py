"""Factor effects: alone, shared and last, and main effects with interactions."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.report.content.schema import Effect, Results
from spark_analysis.report.content.tables import metric_label
from spark_analysis.report.figures.interval_bars import (
    Interval,
    draw_interval,
    limits_of,
)
from spark_analysis.report.figures.style import (
    INK,
    MUTED,
    REFERENCE,
    log_scale,
    new_figure,
    plain_log_axis,
)

# Markers, because colours identify arms in all figures.
_KINDS: Final = {"alone": "o", "share": "D", "last": "s"}
_STEP: Final = 0.24
_DECIDED: Final = ("lower", "higher")


def effects(found: Results, world: str, point: str) -> Figure:
    """Draw the effects on each class in the primary metric."""
    metric = found["primary"]["metric"]
    rows = [
        of
        for of in found["effects"]
        if (of["world"], of["point"], of["metric"]) == (world, point, metric)
    ]
    panels = list(dict.fromkeys((of["arm"], of["class"]) for of in rows))
    count = max(len([of for of in rows if of["kind"] == "effect"]) // len(panels), 1)
    figure = new_figure(0.8 + len(panels) * (0.6 + 0.24 * count))
    axes = figure.subplots(len(panels), 2, squeeze=False)
    for row, (arm, class_name) in zip(axes, panels, strict=True):
        chosen = [of for of in rows if (of["arm"], of["class"]) == (arm, class_name)]
        _factors(row[0], chosen)
        _interactions(row[1], chosen)
        row[0].set_title(f"{arm}: {class_name} {metric_label(found, metric)}")
    axes[-1, 0].set_xlabel("factor by which it changes (dashed: all factors)")
    axes[-1, 1].set_xlabel("main effects and interactions")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3)
    return figure


def _factors(axis: Axes, rows: list[Effect]) -> None:
    limits = limits_of(_interval(of) for of in rows)
    for of in rows:
        if of["kind"] == "whole" and of["ratio"] is not None:
            axis.axvline(of["ratio"], color=INK, lw=0.9, linestyle=(0, (4, 3)))
    names: list[str] = []
    for shift, (kind, symbol) in enumerate(_KINDS.items()):
        chosen = [of for of in rows if of["kind"] == kind]
        names = names or [" × ".join(of["factors"]) for of in chosen]
        for place, of in enumerate(chosen):
            _dot(axis, of, place + (shift - 1) * _STEP, symbol, limits)
        axis.plot([], [], symbol, color=INK, markersize=6, label=kind)
    _finish(axis, names)


def _interactions(axis: Axes, rows: list[Effect]) -> None:
    shown = [of for of in rows if of["kind"] == "effect"]
    limits = limits_of(_interval(of) for of in shown)
    for place, of in enumerate(shown):
        _dot(axis, of, place, "o", limits)
    _finish(axis, [" × ".join(of["factors"]) for of in shown])


def _dot(
    axis: Axes,
    effect: Effect,
    place: float,
    symbol: str,
    limits: tuple[float, float],
) -> None:
    draw_interval(
        axis,
        _interval(effect),
        place,
        limits=limits,
        shade=INK if effect["verdict"] in _DECIDED else MUTED,
        symbol=symbol,
    )


def _interval(effect: Effect) -> Interval:
    return Interval(effect["ratio"], effect["ratio_low"], effect["ratio_high"])


def _finish(axis: Axes, labels: list[str]) -> None:
    log_scale(axis, "x")
    axis.axvline(1, color=INK, linewidth=0.8, zorder=REFERENCE)
    axis.set(ylim=(max(len(labels), 1) - 0.4, -0.6))
    axis.set_yticks(range(len(labels)), labels)
    axis.grid(axis="y", visible=False)
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.9), max(high, 1.12))
    plain_log_axis(axis, "x")
