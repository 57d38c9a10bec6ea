"""Tests and intervals of one contrast, against brute force and SciPy."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from spark_analysis.statistics.intervals import mean_interval
from spark_analysis.statistics.paired import (
    DRAWS,
    jackknife_values,
    paired_p,
    sign_flip_p,
    smallest_p,
    t_p,
    tost,
)
from spark_analysis.statistics.prediction import prediction_interval

LOGS = np.random.default_rng(31).normal(0.1, 0.2, 11)


@pytest.mark.parametrize("count", [2, 3, 7, 11])
def test_sign_flips_are_all_enumerated(count: int) -> None:
    values = LOGS[:count]
    sums = [abs(np.dot(signs, values)) for signs in product((1, -1), repeat=count)]
    reached = sum(each >= abs(values.sum()) - 1e-12 for each in sums)
    assert sign_flip_p(values) == pytest.approx(reached / 2**count)


def test_equal_sessions_give_the_smallest_p_and_ties_count() -> None:
    assert sign_flip_p(np.full(12, 0.3)) == smallest_p(12) == 2**-11
    # Two zeros do not change the sum: four sign vectors reach it, not two.
    assert sign_flip_p(np.array([0.3] * 10 + [0.0] * 2)) == 2**-9


def test_drawn_signs_agree_with_all_signs_and_repeat_with_their_seed() -> None:
    # A twenty-first session without a difference changes no p, but makes signs random.
    values = np.append(np.random.default_rng(5).normal(0.05, 0.2, 20), 0.0)
    exact, drawn = sign_flip_p(values[:20]), sign_flip_p(values, seed=7)
    assert drawn == sign_flip_p(values, seed=7) != sign_flip_p(values, seed=8)
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact / DRAWS))
    assert sign_flip_p(np.full(30, 0.3)) == smallest_p(30) == 1 / (DRAWS + 1)


def test_t_is_students() -> None:
    expected = stats.ttest_1samp(LOGS, 0.0).pvalue
    assert t_p(LOGS) == pytest.approx(expected)
    assert t_p(np.zeros(5)) == 1.0
    assert t_p(np.full(5, 0.2)) == 0.0


def test_p_is_the_larger_of_both_and_agrees_with_the_interval() -> None:
    generator = np.random.default_rng(11)
    decided = 0
    for _ in range(200):
        logs = generator.normal(0.08, 0.1, 8)
        p = paired_p(logs)
        assert p == max(sign_flip_p(logs), t_p(logs))
        found = mean_interval(logs, 0.95)
        if p < 0.05:
            decided += 1
            assert not found.low <= 0 <= found.high
    assert 20 < decided < 180


def test_an_arm_that_answers_nothing_is_worse_by_its_signs() -> None:
    assert paired_p(np.array([math.inf] * 12)) == smallest_p(12)
    assert paired_p(np.array([math.inf, -math.inf] * 6)) == 1.0


@pytest.mark.parametrize(
    ("sessions", "contrasts", "p"),
    [(1, 1, 1.0), (2, 1, 0.5), (6, 2, 1 / 16), (12, 21, 21 / 2048), (14, 1, 2**-13)],
)
def test_smallest_p_is_that_of_holm(sessions: int, contrasts: int, p: float) -> None:
    assert smallest_p(sessions, contrasts) == p


def test_jackknife_of_a_mean_returns_the_observations() -> None:
    without = np.array([np.delete(LOGS, i).mean() for i in range(len(LOGS))])
    np.testing.assert_allclose(jackknife_values(LOGS.mean(), without), LOGS)


def test_jackknife_values_have_the_pooled_value_as_mean() -> None:
    without = np.random.default_rng(3).normal(size=14)
    assert jackknife_values(0.7, without).mean() == pytest.approx(0.7)


@pytest.mark.parametrize("shift", [-0.04, 0.0, 0.03, 0.2])
def test_equivalence_is_two_one_sided_t_tests(shift: float) -> None:
    logs, margin = LOGS / 10 + shift, math.log1p(0.05)
    inside = max(
        stats.ttest_1samp(logs, margin, alternative="less").pvalue,
        stats.ttest_1samp(logs, -margin, alternative="greater").pvalue,
    )
    assert tost(logs, 0.05) == pytest.approx(inside)


def test_equivalence_needs_two_finite_sessions() -> None:
    assert tost(np.array([0.0]), 0.05) == 1.0
    assert tost(np.array([0.0, math.inf]), 0.05) == 1.0
    assert tost(np.zeros(2), 0.05) == 0.0


@pytest.mark.parametrize("calibration_error", [0.0, 0.05])
def test_a_prediction_covers_what_an_experiment_measures(
    calibration_error: float,
) -> None:
    generator = np.random.default_rng(17)
    covered, experiments = 0, 2000
    for _ in range(experiments):
        shift = generator.normal(0, calibration_error) if calibration_error else 0.0
        found = prediction_interval(
            generator.normal(0.3 + shift, 0.1, 12), 0.95, calibration_error
        )
        covered += found.low <= generator.normal(0.3, 0.1, 12).mean() <= found.high
    assert 0.94 <= covered / experiments <= 0.97
