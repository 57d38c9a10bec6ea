"""Comparison of arms over points, and ratios by level, from values made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spark_analysis.judging.cells import CellKey
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.contrast import contrast_of
from spark_analysis.judging.pairs import Pair, PairCell, pair_cells
from spark_analysis.judging.study import Study
from tests.spark_analysis.studies import (
    P99,
    comparison_of,
    manifest_of,
    study_of,
)

ARMS = {name: dict[str, str]() for name in ("fifo", "planes", "priority")}
PAIR = Pair("priority", "planes")
LOADS, SHARES = ("0.5", "0.7", "0.9"), ("small", "large")


def point_of(
    load: str,
    share: str,
    ratio: float,
    *,
    blocks: int = 12,
    world: str = "live",
    arms: dict[str, dict[str, str]] = ARMS,
    thin: tuple[tuple[str, str], ...] = (),
    lost: tuple[str, ...] = (),
) -> Comparison:
    """Make a point at which priority's p99 is ``ratio`` times that of planes."""
    name = f"load={load} share={share}"
    manifest = manifest_of(
        arms, ["control"], blocks, (name, {"load": load, "share": share}), world
    )
    rng = np.random.default_rng([blocks, LOADS.index(load), SHARES.index(share)])
    block = np.exp(rng.normal(0, 0.3, size=blocks))
    means = {"fifo": 10.0, "planes": 2.0, "priority": 2.0 * ratio}
    values = {
        ("control", arm): list(
            means[arm.removesuffix("-again")]
            * block
            * np.exp(rng.normal(0, 0.01, size=blocks))
        )
        for arm in arms
    }
    for arm in lost:
        values["control", arm] = [math.inf] * blocks
    return comparison_of(manifest, values, thin)


@pytest.fixture
def study() -> Study:
    """Priority is best at high loads, planes at low loads with a large share."""
    ratios = {
        ("0.5", "small"): 1.0,
        ("0.5", "large"): 1.3,
        ("0.7", "small"): 0.8,
        ("0.7", "large"): 1.0,
        ("0.9", "small"): 0.5,
        ("0.9", "large"): 0.6,
    }
    points = [point_of(*levels, ratio) for levels, ratio in ratios.items()]
    return study_of(points, [PAIR, Pair("planes", "fifo")])


def winners(cells: tuple[PairCell, ...]) -> list[str]:
    return [cell.ahead for cell in cells if cell.metric == P99 and cell.pair == PAIR]


def test_the_map_says_who_is_ahead_where(study: Study) -> None:
    assert winners(study.pairs) == [
        "same",
        "planes",
        "priority",
        "same",
        "priority",
        "priority",
    ]


def test_goodput_that_is_the_same_everywhere_is_the_same(study: Study) -> None:
    found = {cell.winner for cell in study.pairs if cell.metric != P99}
    assert found == {"same"}


def test_p_is_that_of_the_contrast_adjusted_over_all_points(study: Study) -> None:
    contrasts = [
        contrast_of(
            *(of.sessions[CellKey("control", arm, P99.name)] for arm in PAIR),
            metric=P99,
            rules=of.rules,
        )
        for of in study.comparisons
    ]
    p = [it.p for it in contrasts if it.p is not None]
    cells = [c for c in study.pairs if c.metric == P99 and c.pair == PAIR]
    order = np.argsort(p)
    q = np.minimum.accumulate((np.sort(p) * 6 / np.arange(1, 7))[::-1])[::-1]
    for rank, index in enumerate(order):
        assert cells[index].p == pytest.approx(q[rank])
    assert [cell.ratio for cell in cells] == [it.ratio for it in contrasts]


def test_named_pairs_of_one_point_are_a_family() -> None:
    comparison = point_of("0.5", "small", 0.5)
    pairs = [PAIR, Pair("planes", "fifo")]
    alone = pair_cells([comparison], [PAIR], [P99])
    both = pair_cells([comparison], pairs, [P99])
    assert alone[0].p is not None
    assert both[0].p == 2 * alone[0].p


def test_a_thin_tail_of_either_arm_refuses_the_pair() -> None:
    thin = point_of("0.5", "small", 0.5, thin=(("control", "planes"),))
    cells = pair_cells([thin, point_of("0.9", "small", 0.5)], [PAIR], [P99])
    assert [cell.winner for cell in cells] == ["refused", "first"]
    assert "effective exceedances of p99; 30 are needed" in cells[0].why
    assert (cells[0].ratio, cells[0].p) == (None, None)


def test_an_arm_that_answers_is_ahead_of_one_that_does_not() -> None:
    comparison = point_of("0.5", "small", 1.0, lost=("planes",))
    (cell,) = pair_cells([comparison], [PAIR], [P99])
    assert (cell.ahead, cell.ratio) == ("priority", (0.0, 0.0, 0.0))
    (cell,) = pair_cells([comparison], [Pair("planes", "priority")], [P99])
    assert cell.ahead == "priority"
    neither = point_of("0.5", "small", 1.0, lost=PAIR)
    (cell,) = pair_cells([neither], [PAIR], [P99])
    assert cell.why.startswith("more than a share of 0.01 of the requests has no good")


def test_an_arm_that_never_ran_at_a_point_has_no_entry_there() -> None:
    without = {name: {} for name in ("fifo", "planes")}
    points = [
        point_of("0.5", "small", 1.0, arms=without),
        point_of("0.9", "small", 0.5),
    ]
    assert len(pair_cells(points, [PAIR], [P99])) == 1


# ---- by level ----


def test_a_level_is_the_geometric_mean_over_its_points(study: Study) -> None:
    found = {(f.factor, f.level, f.arm): f for f in study.levels}
    assert len(found) == (3 + 2) * 2
    high = found["load", "0.9", "priority"]
    means = [
        comparison.cell("control", "priority", P99.name).contrast
        for comparison in study.comparisons
        if comparison.manifest.point.levels["load"] == "0.9"
    ]
    expected = math.prod(c.ratio.value for c in means if c) ** (1 / 2)
    assert high.ratio is not None
    assert high.ratio.value == pytest.approx(expected)
    assert (high.points, high.of) == (2, 2)


def test_a_level_with_a_point_that_is_not_compared_has_no_mean() -> None:
    """A mean over only the light points would be misleading."""
    thin = point_of("0.9", "small", 0.5, thin=(("control", "priority"),))
    made = study_of([thin, point_of("0.9", "large", 0.6), point_of("0.5", "small", 1)])
    found = {(f.factor, f.level, f.arm): f for f in made.levels}
    high = found["load", "0.9", "priority"]
    assert (high.ratio, high.points, high.of) == (None, 1, 2)
    low = found["load", "0.5", "priority"]
    assert low.ratio is not None
    assert (low.points, low.of) == (1, 1)


def test_a_level_at_which_an_arm_lost_requests_has_no_mean() -> None:
    dead = point_of("0.9", "small", 0.5, lost=("priority",))
    made = study_of([dead, point_of("0.9", "large", 0.6), point_of("0.5", "small", 1)])
    found = {(f.factor, f.level, f.arm): f for f in made.levels}
    assert found["load", "0.9", "priority"].ratio is None
