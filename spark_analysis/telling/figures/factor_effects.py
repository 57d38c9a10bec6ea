"""Where an effect comes from: factors alone, shared and last; effects beside them."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.attribution import Attribution, Effect
from spark_analysis.attribution_words import told
from spark_analysis.comparison import Comparison
from spark_analysis.figures.style import INK, MUTED, new_figure, plain_log_axis
from spark_analysis.statistics.factorial import Kind

_KINDS: Final[dict[Kind, tuple[str, str]]] = {
    "alone": ("#0072b2", "o"),
    "share": ("#009e73", "D"),
    "last": ("#d55e00", "s"),
}
# Lines of one factor stand this far apart.
_STEP: Final = 0.24


def effects(comparison: Comparison) -> Figure:
    """Draw one row of two panels per class."""
    design = comparison.design
    assert design is not None
    count = 2 ** len(design.factors) - 1
    names = comparison.class_names
    figure = new_figure(0.8 + len(names) * (0.6 + 0.24 * count))
    axes = figure.subplots(len(names), 2, squeeze=False)
    for row, name in zip(axes, names, strict=True):
        found = told(comparison, name)
        if found is None:
            for axis in row:
                _empty(axis)
        else:
            _factors(row[0], found, design.factors)
            _effects(row[1], found)
        label = "" if found is None else f" · {found.metric.label}"
        row[0].set_title(name + label)
    axes[-1, 0].set_xlabel(f"factor by which it changes ({design.full}: dashed)")
    axes[-1, 1].set_xlabel("main effects and interactions, as factors")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3)
    return figure


def _empty(axis: Axes) -> None:
    axis.set_axis_off()
    axis.text(0, 0.5, "not shown: see the table", color=MUTED, fontsize=8)


def _factors(axis: Axes, found: Attribution, factors: tuple[str, ...]) -> None:
    axis.axvline(found.whole.ratio.value, color=INK, lw=0.9, linestyle=(0, (4, 3)))
    for shift, (kind, (shade, symbol)) in enumerate(_KINDS.items()):
        for place, effect in enumerate(found.of(kind)):
            height = place + (shift - 1) * _STEP
            _dot(axis, effect, height, shade, symbol)
        axis.plot([], [], symbol, color=shade, markersize=6, label=kind)
    _finish(axis, list(factors))


def _effects(axis: Axes, found: Attribution) -> None:
    shown = found.of("effect")
    for place, effect in enumerate(shown):
        _dot(axis, effect, place, INK, "o")
    _finish(axis, [" × ".join(effect.factors) for effect in shown])


def _dot(axis: Axes, effect: Effect, height: float, shade: str, symbol: str) -> None:
    value, low, high = effect.ratio
    colour = shade if effect.found else MUTED
    axis.plot((low, high), (height, height), color=colour, linewidth=2.4, alpha=0.5)
    axis.plot(value, height, symbol, color=colour, markersize=5)


def _finish(axis: Axes, labels: list[str]) -> None:
    axis.axvline(1, color=INK, linewidth=0.8)
    axis.set(xscale="log", ylim=(len(labels) - 0.4, -0.6))
    axis.set_yticks(range(len(labels)), labels)
    axis.grid(axis="y", visible=False)
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.9), max(high, 1.12))
    plain_log_axis(axis, "x")
