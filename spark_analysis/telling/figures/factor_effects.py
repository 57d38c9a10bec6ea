"""Where an effect comes from: factors alone, shared and last; effects beside them."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.judging.attribution import Attribution, Effect
from spark_analysis.judging.comparison import Comparison
from spark_analysis.statistics.factorial import Kind
from spark_analysis.telling.figures.interval_bars import draw_interval, limits_of
from spark_analysis.telling.figures.style import INK, MUTED, new_figure, plain_log_axis

_KINDS: Final[dict[Kind, tuple[str, str]]] = {
    "alone": ("#0072b2", "o"),
    "share": ("#009e73", "D"),
    "last": ("#d55e00", "s"),
}
# Lines of one factor stand this far apart.
_STEP: Final = 0.24


def effects(comparison: Comparison) -> Figure:
    """Draw one row of two panels per design and class."""
    designs = comparison.designs
    assert designs
    count = 2 ** len(designs[0].factors) - 1
    rows = [(design, name) for design in designs for name in comparison.class_names]
    figure = new_figure(0.8 + len(rows) * (0.6 + 0.24 * count))
    axes = figure.subplots(len(rows), 2, squeeze=False)
    for row, (design, name) in zip(axes, rows, strict=True):
        found = comparison.attribution_told(design, name)
        if found is None:
            for axis in row:
                _empty(axis)
        else:
            _factors(row[0], found, design.factors)
            _effects(row[1], found)
        label = "" if found is None else f" · {found.metric.label}"
        of = f"{design.full}: " if len(designs) > 1 else ""
        row[0].set_title(of + name + label)
    whole = designs[0].full if len(designs) == 1 else "all factors"
    axes[-1, 0].set_xlabel(f"factor by which it changes ({whole}: dashed)")
    axes[-1, 1].set_xlabel("main effects and interactions, as factors")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3)
    return figure


def _empty(axis: Axes) -> None:
    axis.set_axis_off()
    axis.text(0, 0.5, "not shown: see the table", color=MUTED, fontsize=8)


def _factors(axis: Axes, found: Attribution, factors: tuple[str, ...]) -> None:
    limits = limits_of(effect.ratio for effect in found.effects)
    axis.axvline(found.whole.ratio.value, color=INK, lw=0.9, linestyle=(0, (4, 3)))
    for shift, (kind, (shade, symbol)) in enumerate(_KINDS.items()):
        for place, effect in enumerate(found.of(kind)):
            _dot(axis, effect, place + (shift - 1) * _STEP, shade, symbol, limits)
        axis.plot([], [], symbol, color=shade, markersize=6, label=kind)
    _finish(axis, list(factors))


def _effects(axis: Axes, found: Attribution) -> None:
    shown = found.of("effect")
    limits = limits_of(effect.ratio for effect in shown)
    for place, effect in enumerate(shown):
        _dot(axis, effect, place, INK, "o", limits)
    _finish(axis, [" × ".join(effect.factors) for effect in shown])


def _dot(
    axis: Axes,
    effect: Effect,
    place: float,
    shade: str,
    symbol: str,
    limits: tuple[float, float],
) -> None:
    draw_interval(
        axis,
        effect.ratio,
        place,
        limits=limits,
        shade=shade if effect.found else MUTED,
        symbol=symbol,
    )


def _finish(axis: Axes, labels: list[str]) -> None:
    axis.axvline(1, color=INK, linewidth=0.8)
    axis.set(xscale="log", ylim=(len(labels) - 0.4, -0.6))
    axis.set_yticks(range(len(labels)), labels)
    axis.grid(axis="y", visible=False)
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.9), max(high, 1.12))
    plain_log_axis(axis, "x")
