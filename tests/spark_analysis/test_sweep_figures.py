"""A map of a sweep can be read, however many factors and whatever their names."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from spark_analysis.judging.pairs import Pair
from spark_analysis.telling.figures.style import colour, dash, marker, styled
from spark_analysis.telling.figures.sweep_maps import pair_map

FACTORS = {
    "load": ("0.5", "0.7", "0.9"),
    "share": ("0.05", "0.25"),
    "service": ("exponential", "bimodal", "pareto"),
    "granularity": ("100us", "1ms", "whole"),
}
PAIR = Pair("priority", "planes")
HEADLINE = SimpleNamespace(label="p99")


def study(factors: dict[str, tuple[str, ...]]) -> Any:
    """Say that the first arm is ahead everywhere, at every point with another ratio."""
    points = [
        SimpleNamespace(name=str(n), levels=dict(zip(factors, levels, strict=True)))
        for n, levels in enumerate(itertools.product(*factors.values()))
    ]
    cells = [
        SimpleNamespace(
            pair=PAIR,
            metric=HEADLINE,
            class_name=name,
            point=point.name,
            winner="first",
            ratio=SimpleNamespace(value=(1 + int(point.name)) / 100),
        )
        for point in points
        for name in ("control", "produce")
    ]
    return SimpleNamespace(
        factors=factors,
        class_names=["control", "produce"],
        headline=HEADLINE,
        pairs=cells,
        manifest=SimpleNamespace(points=points),
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_point_is_on_the_map_and_no_words_overlap(count: int) -> None:
    subject = study(dict(list(FACTORS.items())[:count]))
    with styled():
        figure = pair_map(subject, PAIR)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        words = [
            it for it in figure.findobj(Text) if it.get_visible() and it.get_text()
        ]
        boxes = [it.get_window_extent(canvas.get_renderer()) for it in words]
    told = [it.get_text() for it in words]
    for n in range(len(subject.manifest.points)):
        value = (1 + n) / 100
        assert sum(_is(value, text) for text in told) >= 2
    for (a, one), (b, other) in itertools.combinations(
        zip(told, boxes, strict=True), 2
    ):
        assert not one.overlaps(other), (a, b)
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in zip(told, boxes, strict=True):
        assert box.x0 >= 0, text
        assert box.x1 <= width, text
        assert box.y0 >= 0, text
        assert box.y1 <= height, text


def _is(value: float, text: str) -> bool:
    try:
        return float(text) == pytest.approx(value)
    except ValueError:
        return False


def test_no_two_arms_look_alike() -> None:
    rivals = tuple(f"arm-{n}" for n in range(18))
    comparison: Any = SimpleNamespace(
        rivals=rivals, manifest=SimpleNamespace(baseline="base")
    )
    for look in (marker, dash):
        looks = {(colour(comparison, arm), look(comparison, arm)) for arm in rivals}
        assert len(looks) == len(rivals)
