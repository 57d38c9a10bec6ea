"""Verdicts from sessions: exceedance gate, family, noise floor, word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from spark_analysis.judging.cell_sessions import CellSessions, quantile_sessions
from spark_analysis.judging.cells import (
    WITHIN_NOISE,
    Cell,
    CellKey,
    adjust_families,
    judge_cells,
    noise_floor,
)
from spark_analysis.judging.contrast import contrast_of, paired_logs
from spark_analysis.judging.metrics import Metric, metrics_of
from spark_analysis.judging.rules import Rules
from spark_analysis.recordings.contract import Options
from spark_analysis.statistics.paired import smallest_p

OPTIONS = Options(
    quantiles=(Fraction(95, 100), Fraction(99, 100)),
    alpha=0.05,
    margin_latency=0.05,
    margin_goodput=0.02,
    exceedances_shown=10,
)
P95, P99, GOODPUT = metrics_of(OPTIONS)
SESSIONS = 12
RULES = Rules(
    baseline="fifo",
    again="fifo-again",
    primary=("control", "p99_ms"),
    options=OPTIONS,
)


def of(
    arm: str,
    values: Sequence[float],
    *,
    class_name: str = "control",
    counts: int = 10_000,
    exceedances: Sequence[int] | None = None,
) -> CellSessions:
    """Return a p99 with these session values and an evenly spread tail."""
    return CellSessions(
        point="",
        class_name=class_name,
        arm=arm,
        metric="p99_ms",
        sessions=tuple(range(len(values))),
        values=tuple(values),
        pooled=float(np.median(values)),
        without=(float(np.median(values)),) * len(values),
        counts=(counts,) * len(values),
        exceedances=tuple(exceedances or [counts // 100] * len(values)),
    )


def logs(mean: float, t: float, seed: int) -> np.ndarray:
    """Return log-ratios with exactly this mean and t."""
    noise = np.random.default_rng(seed).normal(size=SESSIONS)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    return mean + noise * abs(mean) * math.sqrt(SESSIONS) / t


def judged(
    log_ratios: Mapping[str, Sequence[float]],
    rules: Rules = RULES,
    metric: Metric = P99,
) -> dict[str, Cell]:
    """Return the verdicts on arms with these log-ratios to a baseline of 1 ms."""
    cells = [of("fifo", [1.0] * SESSIONS)]
    cells += [of(arm, np.exp(each).tolist()) for arm, each in log_ratios.items()]
    return {cell.arm: cell for cell in judge_cells(cells, [metric], rules)}


QUIET_PAIR = logs(0.001, 0.1, seed=0)


def test_the_values_of_a_cell() -> None:
    found = judged({"fifo-again": QUIET_PAIR, "wfq": logs(-0.3, 10, seed=1)})
    base, again, wfq = found["fifo"], found["fifo-again"], found["wfq"]
    assert (base.verdict, again.verdict, wfq.verdict) == ("baseline", "A/A", "better")
    assert base.contrast is None
    assert wfq.sessions == SESSIONS
    assert wfq.requests == SESSIONS * 10_000
    assert wfq.ratio is not None
    assert wfq.ratio.value == pytest.approx(math.exp(-0.3))
    assert wfq.p_min == smallest_p(SESSIONS)
    assert again.p_min is None
    assert not wfq.secondary


def test_a_degenerate_contrast_leaves_a_t_of_ten_significant() -> None:
    """A difference in one session of twelve has p = 1 and affects no other p."""
    one_session = [3.0] + [0.0] * (SESSIONS - 1)
    rivals = {f"equal-{n}": one_session for n in range(20)}
    found = judged({"wfq": logs(-0.3, 10, seed=1), **rivals})
    assert found["wfq"].word == "better"
    assert found["wfq"].contrast is not None
    assert found["wfq"].contrast.p == 21 * smallest_p(SESSIONS)
    assert found["equal-0"].word == "not significant"


def test_a_contrast_with_a_thin_tail_is_refused_before_the_family_is_formed() -> None:
    lone = [100] + [0] * (SESSIONS - 1)
    cells = [
        of("fifo", [1.0] * SESSIONS),
        of("wfq", np.exp(logs(-0.3, 10, seed=1)).tolist()),
        *(
            of(f"thin-{n}", [0.5] * SESSIONS, counts=1_000, exceedances=lone)
            for n in range(100)
        ),
    ]
    found = {cell.arm: cell for cell in judge_cells(cells, [P99], RULES)}
    assert found["wfq"].word == "better"
    assert found["wfq"].p_min == smallest_p(SESSIONS)
    thin = found["thin-0"]
    assert thin.verdict.startswith("refused: 1.2 effective exceedances of p99; 10 are")
    assert (thin.value, thin.contrast, thin.p_min) == (None, None, None)


def test_the_baseline_s_thin_tail_refuses_its_rivals() -> None:
    thin = of("fifo", [1.0] * SESSIONS, counts=50, exceedances=[1] * SESSIONS)
    cells = [thin, of("wfq", [0.5] * SESSIONS)]
    assert [cell.word for cell in judge_cells(cells, [P99], RULES)] == ["refused"] * 2


def test_the_repeated_baseline_is_in_no_family() -> None:
    with_it = judged({"fifo-again": QUIET_PAIR, "wfq": logs(-0.3, 3.5, seed=1)})
    without = judged({"wfq": logs(-0.3, 3.5, seed=1)})
    assert with_it["wfq"].contrast == without["wfq"].contrast


def test_primary_and_secondary_contrasts_are_separate_families() -> None:
    contrast = contrast_of(
        of("wfq", np.exp(logs(-0.3, 10, seed=1)).tolist()),
        of("fifo", [1.0] * SESSIONS),
        P99,
        RULES,
    )
    rivals = {
        CellKey(name, arm, metric): contrast
        for name in ("control", "produce", "fetch")
        for arm in ("wfq", "planes")
        for metric in ("p95_ms", "p99_ms")
    }
    _, p_min = adjust_families(rivals, RULES.primary)
    assert {key: p / smallest_p(SESSIONS) for key, p in p_min.items()} == {
        key: 2 if key[::2] == RULES.primary else 6 if key.metric == "p95_ms" else 4
        for key in rivals
    }


def test_no_difference_within_the_noise_floor_is_better_or_worse() -> None:
    """Two baselines differ by 4 %, so the noise floor is 4 % on either side."""
    found = judged(
        {
            "fifo-again": logs(0.04, 20, seed=2),
            "near": logs(-0.042, 30, seed=3),
            "far": logs(-0.3, 30, seed=4),
            "beyond": logs(0.06, 60, seed=5),
        }
    )
    noise = found["near"].noise
    assert noise is not None
    assert noise.low == pytest.approx(1 / noise.high)
    assert found["fifo-again"].ratio is not None
    assert noise.high == found["fifo-again"].ratio.high
    # The ratio is within the margin, so the verdict is equivalent all the same.
    assert found["near"].word == "equivalent"
    assert (found["far"].word, found["beyond"].word) == ("better", "worse")


def test_a_real_difference_within_the_noise_floor_is_not_significant() -> None:
    found = judged(
        {"fifo-again": logs(0.04, 20, seed=2), "near": logs(-0.042, 30, seed=3)},
        metric=replace(P99, margin=0.01),
    )["near"]
    assert found.contrast is not None
    assert found.contrast.p is not None
    assert found.contrast.p < OPTIONS.alpha
    assert (found.word, found.why) == ("not significant", WITHIN_NOISE)


def test_without_a_second_baseline_there_is_no_floor() -> None:
    assert noise_floor(None) is None
    assert judged({"wfq": logs(-0.3, 10, seed=1)})["wfq"].noise is None


@pytest.mark.parametrize(
    ("mean", "t", "word"),
    [(-0.3, 10, "better"), (0.3, 10, "worse"), (0.01, 2, "equivalent")],
)
def test_words(mean: float, t: float, word: str) -> None:
    assert judged({"wfq": logs(mean, t, seed=6)})["wfq"].word == word


def test_an_insignificant_difference_is_not_an_equivalence() -> None:
    found = judged({"wfq": logs(0.2, 1.5, seed=6)})["wfq"]
    assert (found.word, found.why) == ("not significant", "")
    assert found.value is not None
    assert found.ratio is not None


def test_too_few_sessions_are_named() -> None:
    cells = [of("fifo", [1.0] * 4), of("wfq", [0.5, 0.51, 0.52, 0.5])]
    (_, found) = judge_cells(cells, [P99], RULES)
    assert found.word == "not significant"
    assert found.why == "4 sessions give no p below 0.12; 0.05 is needed"


def test_a_single_session_bounds_nothing() -> None:
    cells = [of("fifo", [1.0]), of("wfq", [0.5])]
    cells = [replace(cell, without=(math.nan,)) for cell in cells]
    (_, found) = judge_cells(cells, [P99], RULES)
    assert found.word == "not significant"
    assert found.value == (0.5, 0.0, math.inf)
    assert found.ratio == (0.5, 0.0, math.inf)


def test_an_arm_that_answers_is_better_than_one_that_does_not() -> None:
    lost, good = [math.inf] * SESSIONS, [1.0] * SESSIONS
    for base, arm, word in [(lost, good, "better"), (good, lost, "worse")]:
        cells = [of("fifo", base), of("wfq", arm)]
        assert judge_cells(cells, [P99], RULES)[1].word == word
    both = judge_cells([of("fifo", lost), of("wfq", lost)], [P99], RULES)
    assert {cell.verdict for cell in both} == {
        "refused: more than a share of 0.01 of the requests has no good answer, "
        "so there is no p99"
    }


def test_goodput_is_better_when_it_rises() -> None:
    cells = [
        replace(of(arm, values), metric="goodput_per_s", exceedances=())
        for arm, values in [("fifo", [100.0] * 12), ("wfq", [120.0, 121.0] * 6)]
    ]
    base, found = judge_cells(cells, [GOODPUT], RULES)
    assert (found.word, found.secondary) == ("better", True)
    assert base.value == (100.0, 100.0, 100.0)
    assert found.value is not None
    assert found.value.value == 120.5


def test_a_deterministic_world_has_no_p() -> None:
    simulated = replace(RULES, calibration_error=0.0)
    found = judged(
        {
            "fifo-again": [0.0] * SESSIONS,
            "wfq": logs(-0.3, 10, seed=1),
            "same": logs(0.01, 5, seed=2),
            "open": logs(0.05, 1, seed=3),
        },
        simulated,
    )
    words = {arm: cell.verdict for arm, cell in found.items()}
    assert words == {
        "fifo": "baseline",
        "fifo-again": "A/A",
        "wfq": "better",
        "same": "equivalent",
        "open": "not significant",
    }
    contrasts = [cell.contrast for cell in found.values() if cell.contrast]
    assert {(it.p, it.p_same) for it in contrasts} == {(None, None)}
    assert {cell.p_min for cell in found.values()} == {None}


def test_the_calibration_widens_a_prediction() -> None:
    def width(error: float) -> float:
        rules = replace(RULES, calibration_error=error)
        ratio = judged({"wfq": logs(-0.3, 10, seed=1)}, rules)["wfq"].ratio
        assert ratio is not None
        return math.log(ratio.high / ratio.low)

    assert width(0.1) > width(0.05) > width(0.0)


def test_thin_sessions_are_judged_by_the_pooled_quantile() -> None:
    """The contrast is the ratio of the pooled quantiles, as printed."""
    generator = np.random.default_rng(9)
    base = [generator.lognormal(0, 0.5, 150) for _ in range(14)]
    cells = [
        quantile_sessions(
            {n: scale * each for n, each in enumerate(base)},
            Fraction(99, 100),
            arm=arm,
        )
        for arm, scale in (("fifo", 1.0), ("wfq", 0.5))
    ]
    found, is_pooled = paired_logs(cells[1], cells[0], P99)
    assert is_pooled
    assert np.mean(list(found.values())) == pytest.approx(math.log(0.5))
    thick = [replace(it, counts=(10_000,) * 14) for it in cells]
    assert not paired_logs(thick[1], thick[0], P99)[1]


def test_only_sessions_of_both_arms_are_paired() -> None:
    arm = replace(of("wfq", [2.0, 3.0]), sessions=(1, 2))
    base = replace(of("fifo", [1.0, 1.0]), sessions=(0, 1))
    assert paired_logs(arm, base, P99) == ({1: pytest.approx(math.log(2.0))}, False)
