"""Latency and attainment over the load: a column of panels per class, a line per arm.

Drawn for a sweep of one factor whose levels are numbers. Bands are the intervals of the
values; the line breaks where a value was refused or is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.report.content.schema import Results, Row
from spark_analysis.report.content.tables import factors_of, metric_label
from spark_analysis.report.figures.style import (
    MUTED,
    colour,
    dash,
    legend,
    log_scale,
    marker,
    new_figure,
    plain_log_axis,
)

_ATTAINMENT: Final = "attainment"
# Classes in a row of the figure.
_ACROSS: Final = 4


def load_factor(found: Results) -> str | None:
    """Return the only factor that varies, if its levels are numbers."""
    varied = factors_of(found)
    if len(varied) != 1:
        return None
    ((name, levels),) = varied.items()
    return name if all(map(_is_number, levels)) else None


def load_curves(found: Results, world: str, factor: str) -> Figure:
    """Draw the primary latency metric and, below it, the share of good answers."""
    metric = found["primary"]["metric"]
    classes = [it["name"] for it in found["classes"]]
    classes = [it for it in classes if any(r["class"] == it for r in found["rows"])]
    bands, across = math.ceil(len(classes) / _ACROSS), min(len(classes), _ACROSS)
    figure = new_figure(0.7 + 3.9 * bands)
    axes = figure.subplots(2 * bands, across, sharex=True, squeeze=False)
    for place, name in enumerate(classes):
        band, column = divmod(place, across)
        above, below = axes[2 * band : 2 * band + 2, column]
        _panel(above, found, _of(found["rows"], world, name, metric), factor)
        _panel(below, found, _of(found["measures"], world, name, _ATTAINMENT), factor)
        log_scale(above, "y")
        plain_log_axis(above, "y")
        above.set_title(name)
        below.axhline(found["slo_share"], color=MUTED, linewidth=0.8)
        below.set_ylim(-0.02, 1.02)
        below.set_xlabel(factor)
        below.tick_params(labelbottom=True)
        if column == 0:
            above.set_ylabel(f"{metric_label(found, metric)} [ms]")
            below.set_ylabel("share of good answers")
    for axis in axes[-2:, len(classes) - across * (bands - 1) :].flat:
        axis.set_visible(False)
    legend(figure, axes[0, 0], [arm["name"] for arm in found["arms"]])
    return figure


def _panel(axis: Axes, found: Results, rows: Sequence[Row], factor: str) -> None:
    """Draw a line and its band for each arm."""
    levels = {it["point"]: float(it["levels"][factor]) for it in found["points"]}
    for arm in found["arms"]:
        name = arm["name"]
        if name == found["again"]:
            continue
        mine = sorted(
            (row for row in rows if row["arm"] == name),
            key=lambda row: levels[row["point"]],
        )
        x = [levels[row["point"]] for row in mine]
        axis.plot(
            x,
            _numbers(row["value"] for row in mine),
            color=colour(found, name),
            linestyle=dash(found, name),
            linewidth=1.3,
            marker=marker(found, name),
            markersize=4,
            label=name,
        )
        axis.fill_between(
            x,
            _numbers(row["low"] for row in mine),
            _numbers(row["high"] for row in mine),
            color=colour(found, name),
            alpha=0.15,
            linewidth=0,
        )


def _of(rows: Iterable[Row], world: str, class_name: str, metric: str) -> list[Row]:
    wanted = world, class_name, metric
    return [it for it in rows if (it["world"], it["class"], it["metric"]) == wanted]


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
