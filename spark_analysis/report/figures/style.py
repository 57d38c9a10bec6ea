"""Style of figures: Okabe-Ito colours, thin rules, no boxes, reproducible bytes.

Colour-blind readers can distinguish the colours; arms also differ in dash and marker.
The HTML report replaces the colour ink by the page's own, so that a figure fits a dark
page. Nothing else in a figure is black. pyplot is not used, because its state is
global.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    Locator,
    LogLocator,
    MaxNLocator,
    NullFormatter,
)

from spark_analysis.report.content.numbers import digits
from spark_analysis.report.content.schema import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#1c1d21"
MUTED: Final = "#8a8d96"
_RIVALS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS: Final = "osD^vP"
_DASHES: Final = (None, (5.0, 1.6), (5.0, 1.4, 1.2, 1.4))
# Ratios of an axis's ends: linear numbers up to the first, 1, 2, 5 per decade up to the
# second.
_NARROW, _WIDE = 5.0, 60.0
# Drawing order of reference lines: above bands, below data.
REFERENCE: Final = 1.5
WIDTH: Final = 8.6
DPI: Final = 160

_RC: Final[dict[Any, Any]] = {
    "svg.hashsalt": "doorkeeper",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": MUTED,
    "grid.alpha": 0.28,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "figure.constrained_layout.use": True,
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw and save in this style, independent of the user's matplotlibrc."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def new_figure(height: float) -> Figure:
    """Return an empty figure of the standard width, in inches."""
    return Figure(figsize=(WIDTH, height))


def rivals(found: Results) -> list[str]:
    """Return the arms other than the baseline and the A/A arm."""
    apart = {found["baseline"], found["again"]}
    return [arm["name"] for arm in found["arms"] if arm["name"] not in apart]


def colour(found: Results, arm: str) -> str:
    """Return an arm's colour: ink for the baseline and its repetition."""
    names = rivals(found)
    if arm not in names:
        return INK
    return _RIVALS[names.index(arm) % len(_RIVALS)]


def dash(found: Results, arm: str) -> tuple[int, tuple[float, ...] | None]:
    """Return an arm's line style, such that coinciding curves stay visible."""
    if arm == found["baseline"]:
        return (0, None)
    names = rivals(found)
    if arm not in names:
        return (0, (0.8, 1.8))
    return (0, _DASHES[_turned(names.index(arm)) % len(_DASHES)])


def marker(found: Results, arm: str) -> str:
    """Return an arm's marker: a plus for the baseline, a cross for its repetition."""
    if arm == found["baseline"]:
        return "P"
    names = rivals(found)
    if arm not in names:
        return "X"
    return _MARKERS[_turned(names.index(arm)) % len(_MARKERS)]


def _turned(place: int) -> int:
    """Shift by one at each repetition of the colours, so that no two arms are alike."""
    return place + place // len(_RIVALS)


def log_scale(axis: Axes, *which: Literal["x", "y"]) -> None:
    """Make axes logarithmic if they have a positive value; else write "no data".

    Called after drawing the data, and before reference lines. An axis without a
    positive value keeps linear limits, which begin below zero; matplotlib cannot save
    it as a logarithmic one.
    """
    if all(_has_positive(axis, name) for name in which):
        for name in which:
            axis.set(**{f"{name}scale": "log"})
        return
    axis.text(
        0.5,
        0.5,
        "no data",
        color=MUTED,
        ha="center",
        va="center",
        transform=axis.transAxes,
    )


def _has_positive(axis: Axes, which: Literal["x", "y"]) -> bool:
    """Return whether positive data is drawn on an axis or on one that shares it."""
    if which == "x":
        siblings = axis.get_shared_x_axes().get_siblings(axis)
        return any(math.isfinite(it.dataLim.minposx) for it in siblings)
    siblings = axis.get_shared_y_axes().get_siblings(axis)
    return any(math.isfinite(it.dataLim.minposy) for it in siblings)


def plain_log_axis(axis: Axes, which: Literal["x", "y"]) -> None:
    """Label a logarithmic axis with enough plain numbers.

    Called last, because the number of labels depends on the limits. An axis that
    `log_scale` left linear keeps its labels.
    """
    scale = axis.get_xscale() if which == "x" else axis.get_yscale()
    if scale != "log":
        return
    low, high = axis.get_xlim() if which == "x" else axis.get_ylim()
    target = axis.xaxis if which == "x" else axis.yaxis
    locator: Locator
    if high / low < _NARROW:
        locator = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
    elif high / low < _WIDE:
        locator = LogLocator(subs=(1.0, 2.0, 5.0))
    else:
        locator = LogLocator()
    target.set_major_locator(locator)
    target.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    target.set_minor_formatter(NullFormatter())


def plain(value: float) -> str:
    """Return a tick label without trailing zeros: 0.1, 1, 10, 1 000."""
    text = digits(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def legend(figure: Figure, axis: Axes, names: Sequence[str]) -> None:
    """Put one legend for all panels above them."""
    handles, labels = axis.get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    shown = [name for name in names if name in by_label]
    figure.legend(
        [by_label[name] for name in shown],
        shown,
        loc="outside upper left",
        ncols=6,
        handlelength=1.8,
        columnspacing=1.6,
    )


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write SVG, transparent, and PNG, on white; neither contains a date."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(
        folder / f"{name}.svg",
        dpi=DPI,
        transparent=True,
        metadata={"Date": None, "Creator": "doorkeeper"},
    )
    # The PNG has the same layout, and computing it takes as long as drawing.
    figure.set_layout_engine("none")
    figure.savefig(
        folder / f"{name}.png",
        dpi=DPI,
        facecolor="white",
        metadata={"Software": "doorkeeper"},
    )
