"""No sentence claims more than its numbers do: made values with known answers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.pairs import Pair
from spark_analysis.statistics.intervals import picked_interval
from spark_analysis.statistics.paired import tost
from spark_analysis.telling.results import results
from spark_analysis.telling.sentences.lead import lead
from spark_analysis.telling.sentences.numbers import ratio
from spark_analysis.telling.sentences.sweep_sentences import pair_sentences
from spark_analysis.telling.sentences.verdict_sentences import from_to, sentence
from tests.spark_analysis.studies import (
    P99,
    comparison_of,
    manifest_of,
    study_of,
)

BLOCKS = 8
RNG = np.random.default_rng(12)
NOISE = {
    key: np.exp(RNG.normal(0, 0.01, BLOCKS))
    for key in [(c, a) for c in ("control", "produce") for a in ("fifo", "wfq")]
}
WILD = np.exp(np.array([2.0, -1.5, 1.8, -0.5, 2.2, -1.0, 1.7, 2.4]))


def made(
    control: float,
    produce: float | Sequence[float],
    thin: Sequence[tuple[str, str]] = (),
    short: Sequence[tuple[str, str]] = (),
    changed: str = "wfq",
) -> Comparison:
    """Compare wfq with fifo; the p99 of ``changed`` are 10 ms times the ratios."""
    manifest = manifest_of({"fifo": {}, "wfq": {}}, ["control", "produce"], BLOCKS)
    ratios = {"control": control, "produce": np.asarray(produce)}
    values: Mapping[tuple[str, str], Sequence[float]] = {
        (name, arm): list(
            10.0 * NOISE[name, arm] * (ratios[name] if arm == changed else 1.0)
        )
        for name, arm in NOISE
    }
    return comparison_of(manifest, values, thin, short)


# ---- who pays ----


def test_where_nothing_is_decided_nobody_is_said_not_to_pay() -> None:
    comparison = made(0.1, list(WILD))
    assert not comparison.cell("produce", "wfq", P99.name).decided
    _, price = lead(comparison)
    assert price.startswith(
        "Whether the other classes pay for it is not decided: 1 of 1 comparison is "
        "undecided (by the largest estimate, produce p99 2."
    )
    assert " under wfq, interval 0." in price


def test_a_class_that_is_as_it_was_does_not_pay() -> None:
    _, price = lead(made(0.1, 1.0))
    assert price == (
        "No other class pays for it in latency: each is better or the same within "
        "5\u202f% under every arm."
    )


def test_a_class_that_pays_is_named() -> None:
    _, price = lead(made(0.1, 3.0))
    assert price == "The price is paid by produce under wfq (p99 3.0 times higher)."


def test_a_class_that_cannot_be_compared_is_not_said_to_pay_nothing() -> None:
    _, price = lead(made(0.1, 1.0, short=[("produce", "wfq")]))
    assert price == (
        "Whether the other classes pay for it is not decided: 1 of 1 cannot be made."
    )


# ---- one estimand in a sentence ----


def test_the_two_values_of_a_sentence_have_the_ratio_it_tells() -> None:
    """Blocks differ tenfold: the ratio of pooled values would be another number."""
    manifest = manifest_of({"fifo": {}, "wfq": {}}, ["control"], BLOCKS)
    block = np.geomspace(1, 10, BLOCKS)
    values = {
        ("control", "fifo"): list(10 * block),
        ("control", "wfq"): list(2.0 * np.sqrt(block)),
    }
    comparison = comparison_of(manifest, values)
    cell = comparison.cell("control", "wfq", P99.name)
    assert cell.contrast is not None
    told = from_to(comparison, cell)
    match = re.match(r"([\d.]+) ms → ([\d.]+) ms in a typical run$", told)
    assert match is not None
    before, after = map(float, match.groups())
    assert after / before == pytest.approx(cell.contrast.ratio.value, rel=0.005)
    assert told in sentence(comparison, cell)
    first, *_ = lead(comparison)
    assert f"{before:.1f} ms in a typical run under fifo, is" in first


# ---- values and verdicts ----


def test_a_verdict_without_a_value_is_told_without_one() -> None:
    comparison = made(0.1, 1.0, thin=[("control", "fifo")])
    cell = comparison.cell("control", "wfq", P99.name)
    assert cell.verdict.word == "better"
    told = sentence(comparison, cell)
    assert told.startswith(
        "The p99 latency of control is 10 times lower under wfq than under fifo "
        "(values not shown; ratio 0.0999"
    )
    assert told.endswith("; 30 are needed.")
    assert "No values are quoted: in the baseline the 200 requests" in told
    assert lead(comparison)[0] == (
        "The p99 latency of control is 10 times lower under wfq, against fifo."
    )
    rows = {
        (row["class"], row["arm"], row["metric"]): row
        for row in results(study_of([comparison]))["rows"]
    }
    base = rows["control", "fifo", "p99_ms"]
    assert base["value"] is None
    assert base["verdict"].startswith("refused: ")
    better = rows["control", "wfq", "p99_ms"]
    assert better["value"] is not None
    assert better["ratio"] < better["ratio_high"] < 1
    assert (better["verdict"], better["withheld"]) == ("better", "")
    assert base["withheld"].startswith("the 200 requests beyond p99")


def test_arms_that_are_not_compared_have_a_value_and_no_ratio() -> None:
    comparison = made(0.1, 1.0, short=[("control", "wfq")])
    cell = comparison.cell("control", "wfq", P99.name)
    assert "over all runs, and not compared: a run has 1 of " in sentence(
        comparison, cell
    )
    (row,) = [
        row
        for row in results(study_of([comparison]))["rows"]
        if (row["class"], row["arm"], row["metric"]) == ("control", "wfq", "p99_ms")
    ]
    assert row["value"] is not None
    assert (row["ratio"], row["p"]) == (None, None)
    assert row["verdict"].startswith("inconclusive: a run has 1 of its requests ")


def test_an_arm_that_loses_is_worse_and_has_no_value() -> None:
    comparison = made(math.inf, 1.0)
    cell = comparison.cell("control", "wfq", P99.name)
    assert cell.verdict.word == "worse"
    assert cell.estimate is None
    told = sentence(comparison, cell)
    assert told.startswith(
        "The p99 latency of control is infinite instead of finite under wfq (values"
    )
    assert "2.0% of the requests got no good answer in time" in told
    mirrored = made(math.inf, 1.0, changed="fifo").cell("control", "wfq", P99.name)
    assert mirrored.verdict.word == "better"


# ---- sameness, adjusted ----


def test_sameness_is_adjusted_for_all_cells_of_a_metric() -> None:
    """Eighteen arms at 3 % with noise: one alone may pass 5 %, and not for all."""
    rng = np.random.default_rng(31)
    arms = ["fifo", *(f"arm{n}" for n in range(18))]
    manifest = manifest_of({arm: {} for arm in arms}, ["control"], BLOCKS)
    logs = {arm: rng.normal(0.03, 0.012, BLOCKS) for arm in arms[1:]}
    values = {("control", "fifo"): [10.0] * BLOCKS} | {
        ("control", arm): list(10 * np.exp(of)) for arm, of in logs.items()
    }
    alone = {arm: tost(of, P99.margin) for arm, of in logs.items()}
    assert min(alone.values()) < 0.05
    comparison = comparison_of(manifest, values)
    told = {arm: comparison.cell("control", arm, P99.name).contrast for arm in arms[1:]}
    adjusted = {arm: contrast.p_same for arm, contrast in told.items() if contrast}
    assert all(adjusted[arm] >= alone[arm] for arm in adjusted)
    least = min(alone, key=lambda arm: alone[arm])
    assert adjusted[least] == pytest.approx(min(1.0, 18 * alone[least]))


# ---- what was picked, and what is told by less ----


def test_the_largest_price_of_many_arms_has_an_interval_for_one_picked() -> None:
    """Ten arms, of whose 20 latencies and goodputs the one furthest off is told."""
    rng = np.random.default_rng(33)
    arms = ["fifo", *(f"arm{n}" for n in range(10))]
    manifest = manifest_of({arm: {} for arm in arms}, ["control", "produce"], BLOCKS)
    logs = {arm: rng.normal(0 if arm == "fifo" else 0.5, 0.05, BLOCKS) for arm in arms}
    values = {("control", arm): list(5 * np.exp(-of)) for arm, of in logs.items()} | {
        ("produce", arm): list(10 * np.exp(of)) for arm, of in logs.items()
    }
    answer, *_, price = lead(comparison_of(manifest, values))
    differences = {arm: logs[arm] - logs["fifo"] for arm in arms[1:]}
    most = max(differences, key=lambda arm: float(differences[arm].mean()))
    picked = picked_interval(differences[most], 0.05, 20)
    low, high = (ratio(math.exp(end)) for end in (picked.low, picked.high))
    assert price.startswith("The price is paid by produce under 10 of 10 arms (by the ")
    assert price.endswith(
        f" under {most}, interval for all 20 comparisons at once {low}–{high})."
    )
    assert "better under 10 of 10 arms (by their estimates, from " in answer


def test_a_class_that_is_cleared_by_a_lower_quantile_is_named_with_it() -> None:
    """Produce has no p99 to be compared, and a p50 that is the same."""
    whole = made(0.1, 1.0, short=[("produce", "wfq")])
    p50 = replace(P99, name="p50_ms", label="p50", quantile=Fraction(1, 2))
    told = made(0.1, 1.0).cells
    lower = [replace(cell, metric=p50) for cell in told if cell.metric == P99]
    both = replace(whole, metrics=(p50, *whole.metrics), cells=(*lower, *whole.cells))
    _, price = lead(both)
    assert price == (
        "No other class pays for it in latency: each is better or the same within "
        "5\u202f% under every arm (produce by its p50 where no p99 can be compared)."
    )


def test_an_undecided_pair_says_that_its_interval_is_of_it_alone() -> None:
    """All classes are asked at once: the interval of one may leave out 1."""
    study = study_of([made(0.1, list(WILD))], [Pair("wfq", "fifo")])
    (of_produce,) = pair_sentences(study, ["produce"])
    assert of_produce.startswith(
        "wfq against fifo, p99 of produce: undecided (ratio 2."
    )
    assert ", interval by itself 0." in of_produce
    (of_control,) = pair_sentences(study, ["control"])
    assert "by itself" not in of_control
