"""What is drawn claims no more than is known: arrows, bands, and what has neither."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spark_analysis.judging.comparison import Comparison, Curve
from spark_analysis.statistics.intervals import Estimate, exceedance_band
from spark_analysis.telling.figures.interval_bars import draw_interval, limits_of
from spark_analysis.telling.figures.latency import exceedance_curves, quantiles
from spark_analysis.telling.figures.ratio_forest import block_lines, forest
from spark_analysis.telling.figures.style import styled
from tests.spark_analysis.conftest import Sojourns
from tests.spark_analysis.studies import comparison_of, manifest_of

LIMITS = (0.1, 10.0)


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with styled():
        yield


def symbols(axis: Axes) -> list[str]:
    return [str(line.get_marker()) for line in axis.lines]


def drawn(estimate: Estimate, upright: bool = False) -> Axes:
    axis: Axes = Figure().subplots()
    draw_interval(
        axis, estimate, 2, limits=LIMITS, shade="k", symbol="o", upright=upright
    )
    return axis


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (Estimate(1.0, 0.5, 2.0), {"o"}),
        (Estimate(1.0, 0.0, math.inf), {"o", "<", ">"}),
        (Estimate(1.0, 0.05, 2.0), {"o", "<"}),
        (Estimate(math.inf, 5.0, math.inf), {">"}),
        (Estimate(0.0, 0.0, 0.0), {"<"}),
    ],
)
def test_what_goes_on_beyond_the_picture_ends_in_an_arrow(
    estimate: Estimate, expected: set[str]
) -> None:
    axis = drawn(estimate)
    assert {symbol for symbol in symbols(axis) if symbol != "None"} == expected
    for line in axis.lines:
        xs = np.asarray(line.get_xdata(), dtype=float)
        assert np.all((xs >= LIMITS[0]) & (xs <= LIMITS[1]))
        assert set(np.asarray(line.get_ydata())) == {2}


def test_upright_arrows_point_up_and_down() -> None:
    axis = drawn(Estimate(1.0, 0.0, math.inf), upright=True)
    assert set(symbols(axis)) == {"None", "o", "v", "^"}


def test_limits_hold_every_finite_end() -> None:
    found = limits_of([Estimate(1.0, 0.2, math.inf), Estimate(0.0, 0.0, 4.0)])
    assert found == pytest.approx((0.2 / 1.5, 4.0 * 1.5))
    assert limits_of([]) == (0.1, 10.0)


@pytest.fixture
def lossy() -> Comparison:
    """Under wfq no run has a p99: its ratio to fifo is infinite."""
    manifest = manifest_of({"fifo": {}, "wfq": {}, "planes": {}}, ["control"], 8)
    noise = np.exp(np.random.default_rng(2).normal(0, 0.05, (2, 8)))
    return comparison_of(
        manifest,
        {
            ("control", "fifo"): list(10 * noise[0]),
            ("control", "wfq"): [math.inf] * 8,
            ("control", "planes"): list(2 * noise[1]),
        },
    )


def test_an_infinite_ratio_is_an_arrow_in_the_forest(lossy: Comparison) -> None:
    latency, _ = forest(lossy).axes
    assert symbols(latency).count(">") == 1
    assert symbols(latency).count("<") == 0


def test_runs_that_lost_their_quantile_are_drawn_as_triangles(
    lossy: Comparison,
) -> None:
    (axis,) = block_lines(lossy).axes
    assert symbols(axis).count("^") == 8


def test_a_quantile_that_is_lost_says_so_and_not_that_it_is_thin(
    lossy: Comparison,
) -> None:
    (axis,) = quantiles(lossy).axes
    assert [text.get_text() for text in axis.texts] == [
        "none: too many requests got no answer"
    ]


# ---- the band of a tail ----


def test_the_band_covers_the_true_share(mm1_sojourns: Sojourns) -> None:
    """Sojourns of M/M/1 are exponential; of 100 experiments 95 should cover each."""
    generator = np.random.default_rng(11)
    values = -np.log([0.5, 0.1, 0.02]) / 0.3
    covered = np.zeros(3)
    for _ in range(100):
        runs = list(np.sort(mm1_sojourns(generator, 8, 2_000, 0.7), axis=1))
        low, high = exceedance_band(runs, values, 0.95)
        covered += (low <= np.exp(-0.3 * values)) & (np.exp(-0.3 * values) <= high)
    assert np.all(covered >= 88)


def test_one_run_bounds_nothing() -> None:
    low, high = exceedance_band([np.arange(9.0)], np.array([1.0, 5.0]), 0.95)
    assert (low.tolist(), high.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_the_end_of_a_curve_is_faint_where_its_share_may_be_none(
    lossy: Comparison,
) -> None:
    curve = Curve(
        class_name="control",
        arm="fifo",
        latency_ms=np.array([1.0, 2.0, 3.0]),
        share=np.array([1.0, 0.1, 0.001]),
        low=np.array([1.0, 0.05, 0.0]),
        high=np.array([1.0, 0.2, 0.003]),
    )
    figure = exceedance_curves(replace(lossy, curves=(curve,)))
    solid, faint, *_ = figure.axes[0].lines
    assert np.isnan(np.asarray(solid.get_ydata(), dtype=float)).tolist() == [
        False,
        False,
        True,
    ]
    assert (solid.get_alpha(), faint.get_alpha()) == (1.0, 0.35)
    assert len(figure.axes[0].collections) == 1
