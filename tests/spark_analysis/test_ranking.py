"""Which arm is best: told for certain, left open, and how often wrongly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.ranking import rank
from tests.spark_analysis.studies import P99, comparison_of, manifest_of


def made(values: dict[str, Sequence[float]]) -> Comparison:
    """Compare arms by these p99s of control, the first one being the baseline."""
    blocks = len(next(iter(values.values())))
    manifest = manifest_of({arm: {} for arm in values}, ["control"], blocks)
    return comparison_of(manifest, {("control", a): list(v) for a, v in values.items()})


def noisy(means: dict[str, float], seed: int, spread: float = 0.03) -> Comparison:
    rng = np.random.default_rng(seed)
    return made(
        {
            arm: list(mean * np.exp(rng.normal(0, spread, size=8)))
            for arm, mean in means.items()
        }
    )


def test_an_arm_that_loses_the_requests_is_beaten() -> None:
    comparison = made({"fifo": [math.inf] * 8, "a": [1.0, 1.1] * 4, "b": [9.0] * 8})
    ranking = rank(comparison, "control", P99)
    assert ranking.order[-1] == "fifo"
    assert "fifo" not in ranking.best


def test_the_repetition_of_the_baseline_is_no_candidate() -> None:
    manifest = manifest_of({"fifo": {}, "a": {}, "fifo-again": {}}, ["control"], 8)
    values = {("control", name): [1.0] * 8 for name in ("fifo", "a", "fifo-again")}
    ranking = rank(comparison_of(manifest, values), "control", P99)
    assert set(ranking.order) == {"fifo", "a"}


@pytest.mark.parametrize("spread", [0.1])
def test_the_true_best_is_rarely_left_out(spread: float) -> None:
    """Four arms of which two are best: one of them beaten is a false alarm.

    With 60 families at a level of 0.05, nine alarms are as unlikely as 0.003.
    """
    means = {"fifo": 2.0, "a": 1.0, "b": 1.0, "c": 1.5}
    alarms = 0
    for seed in range(60):
        best = rank(noisy(means, seed=100 + seed, spread=spread), "control", P99).best
        alarms += not {"a", "b"} <= set(best)
    assert alarms < 9
