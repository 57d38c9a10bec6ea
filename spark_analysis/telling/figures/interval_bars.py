"""An interval drawn: a dot on a bar, and an arrow wherever it goes on.

What lies beyond the limits of a picture is cut off there, and an arrow says so: an
interval that the data cannot bound, or the ratio to an arm that lost its requests, does
not look like a number at the edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from matplotlib.axes import Axes

from spark_analysis.statistics.intervals import Estimate

# Room beyond the outermost finite end, as a factor.
_ROOM = 1.5
_ARROWS = {False: ("<", ">"), True: ("v", "^")}


def limits_of(estimates: Iterable[Estimate]) -> tuple[float, float]:
    """Return where a logarithmic picture of estimates begins and ends."""
    ends = [end for of in estimates for end in of if 0 < end < math.inf]
    if not ends:
        return 0.1, 10.0
    return min(ends) / _ROOM, max(ends) * _ROOM


def draw_interval(
    axis: Axes,
    estimate: Estimate,
    place: float,
    *,
    limits: tuple[float, float],
    shade: str,
    symbol: str,
    upright: bool = False,
) -> None:
    """Draw an estimate at a place of the other axis, ``upright`` or lying."""
    bottom, top = limits
    value, low, high = (min(max(end, bottom), top) for end in estimate)
    _plot(axis, (low, high), (place, place), upright, color=shade, lw=2.4, alpha=0.5)
    if bottom <= estimate.value <= top:
        _plot(axis, (value,), (place,), upright, marker=symbol, color=shade, ms=5.5)
    before, after = _ARROWS[upright]
    if estimate.low < bottom:
        _plot(axis, (bottom,), (place,), upright, marker=before, color=shade, ms=6)
    if estimate.high > top:
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
