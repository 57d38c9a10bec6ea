"""Intervals drawn as a dot on a bar, with an arrow at an end outside of the figure.

The arrow distinguishes an unbounded interval, or the ratio to an arm that lost its
requests, from a number at the edge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from matplotlib.axes import Axes

# Margin beyond the outermost finite end, as a factor.
_ROOM = 1.5
_ARROWS = {False: ("<", ">"), True: ("v", "^")}


class Interval(NamedTuple):
    """A value with both ends; an unbounded end is None."""

    value: float | None
    low: float | None
    high: float | None


def limits_of(intervals: Iterable[Interval]) -> tuple[float, float]:
    """Return the limits of a logarithmic axis for intervals."""
    ends = [end for of in intervals for end in of if end is not None and end > 0]
    if not ends:
        return 0.1, 10.0
    return min(ends) / _ROOM, max(ends) * _ROOM


def draw_interval(
    axis: Axes,
    interval: Interval,
    place: float,
    *,
    limits: tuple[float, float],
    shade: str,
    symbol: str,
    upright: bool = False,
    hollow: bool = False,
) -> None:
    """Draw an interval at a position of the other axis, ``upright`` or horizontal."""
    bottom, top = limits
    low = bottom if interval.low is None else max(interval.low, bottom)
    high = top if interval.high is None else min(interval.high, top)
    _plot(axis, (low, high), (place, place), upright, color=shade, lw=2.4, alpha=0.5)
    value = interval.value
    if value is not None and bottom <= value <= top:
        fill = "none" if hollow else "full"
        mark = {"marker": symbol, "color": shade, "ms": 5.5, "fillstyle": fill}
        _plot(axis, (value,), (place,), upright, **mark)
    before, after = _ARROWS[upright]
    if interval.low is None or interval.low < bottom:
        _plot(axis, (bottom,), (place,), upright, marker=before, color=shade, ms=6)
    if interval.high is None or interval.high > top:
        _plot(axis, (top,), (place,), upright, marker=after, color=shade, ms=6)


def _plot(
    axis: Axes,
    along: tuple[float, ...],
    across: tuple[float, ...],
    upright: bool,
    **style: object,
) -> None:
    x, y = (across, along) if upright else (along, across)
    axis.plot(x, y, **style)  # type: ignore[arg-type]  # matplotlib's keywords
