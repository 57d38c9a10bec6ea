"""How many requests each class had under each arm."""

from __future__ import annotations

from matplotlib.figure import Figure

from spark_analysis.judging.comparison import Comparison
from spark_analysis.telling.figures.style import new_figure


def counts(comparison: Comparison) -> Figure:
    """Draw one bar per class and arm."""
    cells = [it for it in comparison.cells if it.metric == comparison.headline]
    figure = new_figure(0.9 + 0.24 * len(cells))
    names = [f"{it.class_name} · {it.arm}" for it in cells]
    axis = figure.subplots()
    axis.barh(names, [it.measured.requests for it in cells])
    axis.set_xlabel("requests")
    return figure
