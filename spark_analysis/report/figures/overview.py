"""Overview figure: the effect on the left, the prices on the right.

Left: ratio of the primary class to the baseline, one row per arm, one marker per world.
Right: ratios of the other classes in the reference world, on a separate axis. An arm
has the same colour in all figures. The grey bands are the noise floors that verdicts
use: symmetric A/A intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.report.content.schema import Row
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.figures.interval_bars import (
    Interval,
    draw_interval,
    limits_of,
)
from spark_analysis.report.figures.style import (
    INK,
    MUTED,
    REFERENCE,
    colour,
    log_scale,
    new_figure,
    plain_log_axis,
)

_SYMBOLS: Final = "oDs^vP"
# Smallest range around 1 on the axis of prices, which may all be within 0.1 %.
_AROUND: Final = 1.08
_SPREAD: Final = 0.5


def overview(summary: Summary) -> Figure:
    """Draw the effect and the prices of an experiment with one point."""
    found = summary.found
    worlds = [it["world"] for it in found["worlds"]]
    prices = summary.price_classes
    rivals = summary.rivals
    figure = new_figure(1.1 + (0.3 + 0.08 * max(len(worlds), 1)) * len(rivals))
    panels = figure.subplots(1, 2 if prices else 1, sharey=True, squeeze=False)[0]
    primary = found["primary"]["class_name"]
    _panel(
        panels[0],
        summary,
        [(world, [(world, primary)]) for world in worlds],
        f"{summary.label} / {found['baseline']}'s (left is faster)",
    )
    if prices:
        _panel(
            panels[1],
            summary,
            [(name, [(summary.world, name)]) for name in prices],
            f"price: other classes / {found['baseline']}'s ({summary.world})",
        )
        low, high = panels[1].get_xlim()
        panels[1].set_xlim(min(low, 1 / _AROUND), max(high, _AROUND))
    for axis in panels:
        plain_log_axis(axis, "x")
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, handlelength=1.2)
    panels[0].set_yticks(range(len(rivals)), rivals)
    return figure


def _panel(
    axis: Axes,
    summary: Summary,
    series: Sequence[tuple[str, list[tuple[str, str]]]],
    label: str,
) -> None:
    rivals = summary.rivals
    rows: dict[tuple[int, int], Row] = {}
    for number, (_, [(world, class_name)]) in enumerate(series):
        for place, arm in enumerate(rivals):
            row = summary.row(world, class_name, arm)
            if row is not None and row["ratio"] is not None:
                rows[number, place] = row
    limits = limits_of(_interval(row) for row in rows.values())
    step = _SPREAD / max(len(series), 1)
    for (number, place), row in rows.items():
        draw_interval(
            axis,
            _interval(row),
            place + (number - (len(series) - 1) / 2) * step,
            limits=limits,
            shade=colour(summary.found, rivals[place]),
            symbol=_SYMBOLS[number % len(_SYMBOLS)],
            hollow=number > 0,
        )
    for number, (name, _) in enumerate(series):
        symbol, fill = _SYMBOLS[number % len(_SYMBOLS)], "none" if number else "full"
        axis.plot([], [], symbol, color=INK, ms=5.5, fillstyle=fill, label=name)
    log_scale(axis, "x")
    _noise_band(axis, summary, series)
    axis.axvline(1, color=INK, linewidth=0.8, zorder=REFERENCE)
    axis.set(xlabel=label, ylim=(len(rivals) - 0.4, -0.6))
    axis.grid(axis="y", visible=False)


def _noise_band(
    axis: Axes,
    summary: Summary,
    series: Sequence[tuple[str, list[tuple[str, str]]]],
) -> None:
    """Shade the widest noise floor of the classes in a panel, reference world."""
    again = summary.found["again"]
    if again is None:
        return
    classes = {class_name for _, [(_, class_name)] in series}
    rows = (summary.row(summary.world, name, again) for name in classes)
    known = [row for row in rows if row is not None]
    lows = [row["noise_low"] for row in known if row["noise_low"] is not None]
    highs = [row["noise_high"] for row in known if row["noise_high"] is not None]
    if lows and highs:
        axis.axvspan(
            min(lows), max(highs), color=MUTED, alpha=0.25, lw=0, label="noise"
        )


def _interval(row: Row) -> Interval:
    return Interval(row["ratio"], row["ratio_low"], row["ratio_high"])
