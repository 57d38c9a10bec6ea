"""Figures: intervals beyond the axes, styles of arms, maps of sweeps."""

from __future__ import annotations

import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from spark_analysis.report.content.schema import Results
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.figures.interval_bars import (
    Interval,
    draw_interval,
    limits_of,
)
from spark_analysis.report.figures.listing import plots
from spark_analysis.report.figures.load_curves import load_curves
from spark_analysis.report.figures.overview import overview
from spark_analysis.report.figures.style import colour, dash, marker, styled
from spark_analysis.report.figures.sweep_maps import pair_map
from tests.spark_analysis.made_results import BETTER, OPEN, P99, REFUSED, made

FACTORS = {
    "load": ("0.5", "0.7", "0.9"),
    "share": ("0.05", "0.25"),
    "service": ("exponential", "bimodal", "pareto"),
    "granularity": ("100us", "1ms", "whole"),
}
FIRST, SECOND = "priority", "planes"
CELLS = {
    (name, arm): BETTER for name in ("control", "produce") for arm in (FIRST, SECOND)
}


def swept(factors: dict[str, tuple[str, ...]]) -> Results:
    """Return results in which the first arm is better, with a ratio per point."""
    levels = [
        dict(zip(factors, each, strict=True))
        for each in itertools.product(*factors.values())
    ]
    found = made(CELLS, points=levels if factors else ())
    found["pairs"] = [
        {
            "world": "live",
            "point": point["point"],
            "class": name,
            "metric": P99,
            "first": FIRST,
            "second": SECOND,
            "ratio": (1 + number) / 100,
            "ratio_low": None,
            "ratio_high": None,
            "p": 0.001,
            "ahead": FIRST,
            "why": "",
        }
        for number, point in enumerate(found["points"])
        for name in ("control", "produce")
    ]
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_point_is_on_the_map_and_no_words_overlap(count: int) -> None:
    found = swept(dict(list(FACTORS.items())[:count]))
    with styled():
        figure = pair_map(found, FIRST, SECOND)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        words = [
            it for it in figure.findobj(Text) if it.get_visible() and it.get_text()
        ]
        boxes = [it.get_window_extent(canvas.get_renderer()) for it in words]
    shown = [it.get_text() for it in words]
    for number in range(len(found["points"])):
        value = (1 + number) / 100
        assert sum(_is(value, text) for text in shown) >= 2
    pairs = itertools.combinations(zip(shown, boxes, strict=True), 2)
    for (a, one), (b, other) in pairs:
        assert not one.overlaps(other), (a, b)
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in zip(shown, boxes, strict=True):
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
    arms = [f"arm-{n}" for n in range(18)]
    found = made({("control", arm): OPEN for arm in arms})
    for look in (marker, dash):
        looks = {(colour(found, arm), look(found, arm)) for arm in arms}
        assert len(looks) == len(arms)


@pytest.mark.parametrize(
    ("interval", "arrows"),
    [
        (Interval(1.0, 0.9, 1.1), 0),
        (Interval(1.0, None, 1.1), 1),
        (Interval(1.0, 0.9, None), 1),
        (Interval(None, None, None), 2),
    ],
)
def test_an_unbounded_end_is_an_arrow(interval: Interval, arrows: int) -> None:
    axis = Figure().subplots()
    draw_interval(
        axis, interval, 0, limits=limits_of([interval]), shade="#000000", symbol="o"
    )
    markers = [line.get_marker() for line in axis.get_lines()]
    assert sum(it in ("<", ">") for it in markers) == arrows


def test_a_refused_arm_keeps_its_row_without_a_mark() -> None:
    found = made({("control", "wfq"): BETTER, ("control", "planes"): REFUSED})
    (axis,) = overview(Summary(found)).axes
    assert [it.get_text() for it in axis.get_yticklabels()] == ["wfq", "planes"]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_load_curves_have_two_panels_per_class(count: int) -> None:
    names = [f"class-{n}" for n in range(count)]
    cells = {(name, FIRST): BETTER for name in names}
    found = made(cells, points=[{"load": "0.5"}, {"load": "0.9"}])
    with styled():
        figure = load_curves(found, "live", "load")
    shown = [axis for axis in figure.axes if axis.get_visible()]
    titles = [axis.get_title(loc="left") for axis in shown]
    assert len(shown) == 2 * count
    assert [it for it in titles if it] == names


def test_the_first_figure_of_a_sweep_is_the_map_of_its_pair() -> None:
    names = [plot.name for plot in plots(swept(FACTORS))]
    assert names[0] == f"map-{FIRST}-{SECOND}"
