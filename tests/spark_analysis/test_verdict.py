"""Which word is said, and in which order the questions are asked."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from spark_analysis.judging.group_functions import Contrast
from spark_analysis.judging.metrics import Metric, headline_of, metrics_of
from spark_analysis.judging.verdict import Measured, judge
from spark_analysis.recordings.contract import Options
from spark_analysis.statistics.exceedance import Tail
from spark_analysis.statistics.intervals import Estimate

OPTIONS = Options(
    quantiles=(Fraction(1, 2), Fraction(99, 100), Fraction(999, 1000)),
    alpha=0.05,
    margin_latency=0.05,
    margin_goodput=0.02,
    exceedances_shown=30,
    exceedances_headline=100,
    resamples=100,
)
P50, P99, P999, GOODPUT = metrics_of(OPTIONS)
HEAVY = Measured(
    requests=20_000,
    runs=8,
    estimate=Estimate(5.0, 4.0, 6.0),
    lost=0.0,
    tail=Tail(200, 1.0, 200.0),
)
THIN = replace(HEAVY, tail=Tail(200, 4.0, 50.0))
TOO_THIN = replace(HEAVY, tail=Tail(200, 10.0, 20.0))
LOST = replace(HEAVY, estimate=Estimate(math.inf, 3.0, math.inf), lost=0.042)
LOWER = Contrast(
    point_index=0,
    metric=P99.name,
    class_name="control",
    arm="wfq",
    value=0.5,
    low=0.4,
    high=0.6,
    shift=0.5,
    blocks_lower=8,
    blocks_tied=0,
    blocks=8,
    p=0.0078,
    p_same=1.0,
)
HIGHER = replace(LOWER, value=2.0, low=1.7, high=2.4, blocks_lower=0)


def word(
    metric: Metric = P99,
    arm: Measured = HEAVY,
    baseline: Measured = HEAVY,
    contrast: Contrast | None = LOWER,
) -> str:
    return judge(metric, arm, baseline, contrast, OPTIONS).word


def test_metrics_are_named_as_the_contract_says() -> None:
    names = [metric.name for metric in metrics_of(OPTIONS)]
    assert names == ["p50_ms", "p99_ms", "p99.9_ms", "goodput_per_s"]
    assert headline_of(metrics_of(OPTIONS)) == P99


def test_lower_latency_is_better_and_lower_goodput_worse() -> None:
    assert word(P99, contrast=LOWER) == "better"
    assert word(P99, contrast=HIGHER) == "worse"
    assert word(GOODPUT, contrast=LOWER) == "worse"
    assert word(GOODPUT, contrast=HIGHER) == "better"


def test_the_baseline_is_not_judged() -> None:
    assert word(contrast=None) == "baseline"


def test_a_real_but_tiny_difference_is_equivalence() -> None:
    tiny = replace(LOWER, value=0.99, low=0.985, high=0.995, p_same=0.001)
    assert word(contrast=tiny) == "equivalent"


@pytest.mark.parametrize(
    "contrast",
    [
        replace(LOWER, p=0.2),
        replace(LOWER, value=0.9, low=0.7, high=1.1),
        replace(LOWER, p=0.05),
    ],
)
def test_what_is_neither_shown_nor_ruled_out_is_inconclusive(
    contrast: Contrast,
) -> None:
    assert word(contrast=contrast) == "inconclusive"


def test_five_blocks_decide_nothing_not_even_sameness() -> None:
    few = replace(LOWER, blocks=5, p=0.0625, p_same=0.0)
    assert word(contrast=few) == "inconclusive"
    assert word(contrast=replace(few, blocks=6, p=0.03125)) == "equivalent"


def test_a_thin_tail_makes_a_verdict_exploratory() -> None:
    for arm, baseline in ((THIN, HEAVY), (HEAVY, THIN)):
        found = judge(P99, arm, baseline, LOWER, OPTIONS)
        assert (found.word, found.exploratory) == ("better", True)
    assert not judge(P99, HEAVY, HEAVY, LOWER, OPTIONS).exploratory


NOTHING = replace(LOWER, value=0.9, low=0.7, high=1.1, p=0.4)
TOO_FEW = "the 200 requests beyond p99 come in clusters and weigh like 20 (VIF 10)"


def test_a_thin_tail_without_a_finding_is_refused() -> None:
    found = judge(P99, TOO_THIN, HEAVY, NOTHING, OPTIONS)
    assert found.text == f"refused: {TOO_FEW}; 30 are needed"
    assert word(arm=TOO_THIN, contrast=None) == "refused"


def test_few_requests_beyond_a_quantile_are_not_called_a_cluster() -> None:
    seven = replace(HEAVY, tail=Tail(7, 1.0, 7.0))
    found = judge(P99, seven, HEAVY, NOTHING, OPTIONS)
    assert found.why == "7 of the requests can lie beyond p99, and 30 must"


def test_a_thin_tail_does_not_veto_what_all_blocks_say() -> None:
    """To quote a value and to test a difference are two questions."""
    found = judge(P99, TOO_THIN, HEAVY, LOWER, OPTIONS)
    assert (found.word, found.exploratory) == ("better", True)
    assert found.why.startswith(TOO_FEW)
    found = judge(P99, HEAVY, TOO_THIN, LOWER, OPTIONS)
    assert (found.word, found.exploratory) == ("better", True)
    assert found.why.startswith(f"in the baseline {TOO_FEW}")


def test_a_run_too_short_for_its_own_quantile_is_not_compared_by_it() -> None:
    """20,000 requests in 8 runs: 2.5 of a run lie beyond its p99.9."""
    found = judge(P999, HEAVY, HEAVY, LOWER, OPTIONS)
    assert (found.word, found.compared) == ("inconclusive", False)
    assert found.why == (
        "a run has 2.5 of its requests beyond p99.9 on average, too few for a p99.9 of "
        "its own; 5 are needed"
    )
    long = replace(HEAVY, requests=40_000)
    assert judge(P999, long, long, LOWER, OPTIONS).word == "better"
    assert judge(P999, long, HEAVY, LOWER, OPTIONS).compared is False
    assert judge(P999, TOO_THIN, HEAVY, LOWER, OPTIONS).word == "refused"
    lost = replace(LOST, requests=20_000)
    assert judge(P999, lost, HEAVY, HIGHER, OPTIONS).word == "worse"


def test_goodput_has_no_tail_to_be_thin() -> None:
    bare = replace(HEAVY, tail=None)
    assert word(GOODPUT, arm=bare, baseline=bare, contrast=HIGHER) == "better"


def test_without_answers_there_is_no_quantile() -> None:
    found = judge(P99, LOST, HEAVY, None, OPTIONS)
    assert found.text.startswith("refused: 4.2% of the requests got no good answer")


@pytest.mark.parametrize(
    ("arm", "baseline", "ratio", "expected"),
    [(HEAVY, LOST, 0.0, "better"), (LOST, HEAVY, math.inf, "worse")],
)
def test_loss_is_judged_alike_on_either_side(
    arm: Measured, baseline: Measured, ratio: float, expected: str
) -> None:
    contrast = replace(LOWER, value=ratio, low=ratio, high=ratio)
    found = judge(P99, arm, baseline, contrast, OPTIONS)
    assert found.word == expected
    assert "4.2% of the requests got no good answer in time" in found.why


def test_two_arms_that_lose_requests_are_not_the_same() -> None:
    tied = replace(LOWER, value=1.0, low=1.0, high=1.0, p=1.0, p_same=0.0)
    found = judge(P99, LOST, LOST, tied, OPTIONS)
    assert (found.word, found.compared) == ("refused", False)
    assert found.why.startswith("at least 4.2% of the requests got no good answer")
