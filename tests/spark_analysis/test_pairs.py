"""Arms against each other over points, and ratios by level: from made values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.pairs import Pair, PairCell, pair_cells
from spark_analysis.judging.study import Study
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.difference import difference_p
from spark_analysis.statistics.intervals import picked_interval
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
    short: tuple[tuple[str, str], ...] = (),
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
    return comparison_of(manifest, values, thin, short)


@pytest.fixture
def study() -> Study:
    """Priority wins where the load is high, planes where it is low and share large."""
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


def test_ratios_are_those_of_paired_blocks_and_q_those_of_all_points(
    study: Study,
) -> None:
    logs, p = [], []
    for comparison in study.comparisons:
        values = {
            arm: np.array(
                [r.values[P99.name] for r in comparison.run_values if r.arm == arm]
            )
            for arm in PAIR
        }
        logs.append(np.log(values["priority"] / values["planes"]))
        p.append(
            float(difference_p(logs[-1][:, None], ["c"], comparison.manifest.seed)[0])
        )
    cells = [c for c in study.pairs if c.metric == P99 and c.pair == PAIR]
    order = np.argsort(p)
    q = np.minimum.accumulate((np.sort(p) * 6 / np.arange(1, 7))[::-1])[::-1]
    for rank, index in enumerate(order):
        assert cells[index].q == pytest.approx(q[rank])
    for cell, log in zip(cells, logs, strict=True):
        assert cell.ratio is not None
        assert cell.ratio.value == pytest.approx(np.exp(np.mean(log)))


def test_runs_too_short_of_either_arm_leave_the_entry_out_and_say_why() -> None:
    short = point_of("0.5", "small", 0.5, short=(("control", "planes"),))
    cells = pair_cells([short, point_of("0.9", "small", 0.5)], [PAIR], [P99])
    assert [cell.winner for cell in cells] == ["refused", "first"]
    assert cells[0].why.startswith("a run has 1 of its requests beyond p99 on average")


def test_a_thin_tail_does_not_veto_a_pair() -> None:
    thin = point_of("0.5", "small", 0.5, thin=(("control", "planes"),))
    (cell,) = pair_cells([thin], [PAIR], [P99])
    assert cell.winner == "first"


def lost(comparison: Comparison, arms: tuple[str, ...]) -> Comparison:
    values = {
        ("control", arm): [
            math.inf if arm in arms else run.values[P99.name]
            for run in comparison.run_values
            if run.arm == arm
        ]
        for arm in comparison.arm_names
    }
    return comparison_of(comparison.manifest, values)


def test_who_answers_is_ahead_of_who_does_not() -> None:
    comparison = lost(point_of("0.5", "small", 1.0), ("planes",))
    (cell,) = pair_cells([comparison], [PAIR], [P99])
    assert (cell.ahead, cell.ratio) == ("priority", (0.0, 0.0, 0.0))
    (cell,) = pair_cells([comparison], [Pair("planes", "priority")], [P99])
    assert cell.ahead == "priority"
    neither = lost(comparison, PAIR)
    (cell,) = pair_cells([neither], [PAIR], [P99])
    assert cell.why.startswith("at least 2.0% of the requests got no good answer")


def test_an_arm_that_never_ran_at_a_point_has_no_entry_there() -> None:
    without = {name: {} for name in ("fifo", "planes")}
    points = [
        point_of("0.5", "small", 1.0, arms=without),
        point_of("0.9", "small", 0.5),
    ]
    assert len(pair_cells(points, [PAIR], [P99])) == 1


def logs_of(study: Study, point: str) -> FloatArray:
    """Return the log-ratios of the pair at a point, block by block."""
    (there,) = [c for c in study.comparisons if c.manifest.point.name == point]
    first, second = (
        np.log([r.values[P99.name] for r in there.run_values if r.arm == arm])
        for arm in PAIR
    )
    found: FloatArray = first - second
    return found


def test_an_entry_has_an_interval_for_all_points_of_its_class(study: Study) -> None:
    for cell in study.pairs:
        if (cell.pair, cell.metric) != (PAIR, P99):
            continue
        expected = picked_interval(logs_of(study, cell.point), 0.05, 6)
        assert cell.at_once == pytest.approx(tuple(np.exp(expected)))
    (alone, *_) = study_of(study.comparisons[:1], [PAIR]).pairs
    assert alone.ratio is not None
    assert alone.at_once == pytest.approx(alone.ratio)


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
    """The points left over are the light ones: their mean answers another question."""
    short = point_of("0.9", "small", 0.5, short=(("control", "priority"),))
    made = study_of([short, point_of("0.9", "large", 0.6), point_of("0.5", "small", 1)])
    found = {(f.factor, f.level, f.arm): f for f in made.levels}
    high = found["load", "0.9", "priority"]
    assert (high.ratio, high.points, high.of) == (None, 1, 2)
    low = found["load", "0.5", "priority"]
    assert low.ratio is not None
    assert (low.points, low.of) == (1, 1)


def test_a_level_at_which_an_arm_lost_requests_has_no_mean() -> None:
    dead = lost(point_of("0.9", "small", 0.5), ("priority",))
    made = study_of([dead, point_of("0.9", "large", 0.6), point_of("0.5", "small", 1)])
    found = {(f.factor, f.level, f.arm): f for f in made.levels}
    assert found["load", "0.9", "priority"].ratio is None


# ---- words and pictures ----


# ---- the A/A arm, and broken laws ----
