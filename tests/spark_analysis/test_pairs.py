"""Arms against each other over points, and ratios by level: from made values."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import t as student

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.pairs import Pair, PairCell, pair_cells
from spark_analysis.judging.study import Study
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.difference import difference_p
from spark_analysis.statistics.intervals import picked_interval
from spark_analysis.telling.figures.sweep_maps import by_level, pair_map
from spark_analysis.telling.report.point_parts import warnings_part
from spark_analysis.telling.results import results
from spark_analysis.telling.sentences.numbers import ratio
from spark_analysis.telling.sentences.sweep_sentences import (
    pair_sentences,
    study_again,
    study_cautions,
    study_lead,
)
from spark_analysis.telling.tables.cpu_table import cpu_table
from spark_analysis.telling.tables.sweep_tables import study_tables
from spark_analysis.telling.tables.violations_table import violations_table
from spark_analysis.telling.terminal import show
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


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_few_blocks_put_nobody_ahead(blocks: int) -> None:
    made = study_of([point_of("0.5", "small", 0.1, blocks=blocks)], [PAIR])
    assert set(winners(made.pairs)) == {"undecided"}
    assert any("no data could give a p below" in text for text in study_cautions(made))


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


def test_a_sweep_is_told_by_counts_and_extremes(study: Study) -> None:
    said = pair_sentences(study, ["control"])[0]
    assert said.startswith(
        "priority against planes, p99 of control: priority is ahead at 3 of 6 points "
        "(furthest with ratio 0.5"
    )
    assert "planes is ahead at 1 of 6 points" in said
    (furthest,) = [
        cell
        for cell in study.pairs
        if (cell.pair, cell.metric, cell.point) == (PAIR, P99, "load=0.9 share=small")
    ]
    logs = logs_of(study, furthest.point)
    half = student.ppf(1 - 0.05 / 6 / 2, 11) * logs.std(ddof=1) / math.sqrt(12)
    low, high = (ratio(math.exp(logs.mean() + it)) for it in (-half, half))
    at_once = f"95\u202f% interval for all 6 points at once {low}–{high}"
    assert f", {at_once}, at {furthest.point})" in said
    assert said.endswith(
        "the same within 5\u202f% at 2 (load=0.5 share=small, load=0.7 share=large)."
    )


def test_the_terminal_tells_a_sweep_in_a_screen(study: Study) -> None:
    out = io.StringIO()
    show(study, Console(file=out, width=100))
    text = out.getvalue()
    assert len(text.splitlines()) < 25
    assert "6 points, p99 each" in text
    assert len(study_lead(study)) == 2


def test_the_figures_have_a_panel_per_class_and_factor(study: Study) -> None:
    assert len(by_level(study).axes) == 2
    drawn = pair_map(study, PAIR)
    texts = [text.get_text() for axis in drawn.axes for text in axis.texts]
    assert len(texts) == 6
    assert texts.count("=") == 2


def test_results_name_the_point_of_every_row(study: Study) -> None:
    found = results(study)
    assert found["points"][0]["levels"] == {
        "load": "0.5",
        "share": "small",
    }
    assert {row["point"] for row in found["rows"]} == {
        point["point"] for point in found["points"]
    }
    ahead = [row["ahead"] for row in found["pairs"] if row["metric"] == "p99_ms"]
    assert ahead.count("planes") == 1 + 6


# ---- the A/A arm, and broken laws ----


def test_a_deterministic_world_is_identical_and_says_so() -> None:
    arms = {**ARMS, "fifo-again": {}}
    made = point_of("0.5", "small", 1.0, world="model", arms=arms, blocks=2)
    same = {
        ("control", arm): [
            run.values[P99.name]
            for run in made.run_values
            if run.arm == arm.removesuffix("-again")
        ]
        for arm in made.arm_names
    }
    identical = comparison_of(made.manifest, same)
    assert identical.cell("control", "fifo-again", P99.name).verdict.word == "identical"
    told = study_again(study_of([identical]))
    assert "identical in every class, metric and block, by construction" in told
    broken = study_of([made])
    assert "the world is broken" in study_again(broken)
    assert study_again(broken) in study_cautions(broken)


def test_alarms_of_the_again_arm_are_counted_over_points() -> None:
    arms = {**ARMS, "fifo-again": {}}
    points = [point_of(load, "small", 1.0, arms=arms) for load in LOADS]
    told = study_again(study_of(points))
    assert "a difference was found in some metric at 0 of 3 points" in told


def test_cpu_that_nobody_was_billed_is_a_warning_below_the_bound(study: Study) -> None:
    def billed(share: float) -> Study:
        runs = tuple(
            replace(run, billed_share=share if run.block == 3 else 0.97)
            for run in study.manifest.runs
        )
        return replace(study, manifest=replace(study.manifest, runs=runs))

    assert study_cautions(billed(0.9)) == ()
    (told,) = study_cautions(billed(0.84))
    assert "Less than 0.9 of the broker's CPU was billed" in told
    assert "fifo (0.84)" in told


def test_who_was_billed_for_the_cpu_is_a_table(study: Study) -> None:
    assert cpu_table(study.manifest).rows == ()
    accounts = {
        "cpu_ns": 1000,
        "busy_ns": 800,
        "requests_ns": 600,
        "housekeeping_ns": 100,
        "loop_ns": 50,
        "housekeeping deadlines_ns": 20,
        "housekeeping samples_ns": 75,
        "housekeeping upkeep_ns": 5,
        "housekeeping scrapes_ns": 0,
    }
    waited = accounts | {"busy_ns": 2000}
    billed = {"fifo": accounts, "priority": waited}
    runs = tuple(
        replace(run, accounts=billed.get(run.arm, {})) for run in study.manifest.runs
    )
    manifest = replace(study.manifest, runs=runs)
    compared = len([run for run in manifest.runs_compared if run.arm == "fifo"])
    fifo, priority = cpu_table(manifest).rows
    assert fifo == (
        *("fifo", compared, 0.6, 0.1, 0.05, pytest.approx(0.25)),
        "samples 0.0750, deadlines 0.0200, upkeep 0.00500",
    )
    assert priority[2:6] == (0.3, 0.05, 0.025, pytest.approx(0.625))
    told = {table.name for table in study_tables(replace(study, manifest=manifest))}
    assert "cpu" in told
    page = warnings_part(replace(study, manifest=manifest))
    assert "<summary>Who was billed for the broker&#x27;s CPU</summary>" in page


def test_broken_laws_are_a_warning_and_a_table(study: Study) -> None:
    assert violations_table(study.manifest).rows == ()
    runs = tuple(
        replace(run, violations={"starvation": run.block, "work_conservation": 0})
        if run.arm == "priority"
        else run
        for run in study.manifest.runs
    )
    broken = replace(study, manifest=replace(study.manifest, runs=runs))
    # 0 + 1 + ... + 11 at each of six points; block 0 broke nothing.
    assert violations_table(broken.manifest).rows == (
        ("priority", "starvation", 396, 66),
    )
    assert study_cautions(broken) == (
        "Laws were broken at run time, under priority (starvation 396).",
    )
