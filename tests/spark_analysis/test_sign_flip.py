"""The sign-flip test against SciPy, by hand, and its family-wise error, simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from spark_analysis.statistics.sign_flip import max_t, smallest_p


@pytest.mark.parametrize("blocks", [5, 8, 10])
def test_one_contrast_equals_scipys_exact_permutation_test(blocks: int) -> None:
    values = np.random.default_rng(blocks).normal(0.5, 1.0, size=blocks)
    expected = stats.permutation_test(
        (values,),
        lambda x: abs(np.sum(x)),
        permutation_type="samples",
        n_resamples=np.inf,
        alternative="greater",
    ).pvalue
    assert max_t(values[:, None])[0] == pytest.approx(expected)


def test_three_blocks_by_hand() -> None:
    """Of 8 sign vectors, |sum| of (1, 2, 3) reaches 6 twice; of (1, 2, -3) always."""
    assert max_t(np.array([[1.0], [2.0], [3.0]]))[0] == 0.25
    assert max_t(np.array([[1.0], [2.0], [-3.0]]))[0] == 1.0


def test_unanimous_blocks_reach_the_smallest_p_in_any_family() -> None:
    blocks = 8
    noise = np.random.default_rng(4).normal(size=(blocks, 11))
    p = max_t(np.column_stack([np.full(blocks, -0.3), noise]))
    assert p[0] == smallest_p(blocks) == 2 / 256


def test_smallest_p_tells_when_no_verdict_is_possible() -> None:
    assert smallest_p(5) == 0.0625
    assert smallest_p(6) == 0.03125


def test_identical_contrasts_cost_nothing_and_independent_ones_do() -> None:
    """Max-T sees the dependence that a Bonferroni correction ignores."""
    generator = np.random.default_rng(8)
    values = generator.normal(0.8, 1.0, size=10)
    alone = max_t(values[:, None])[0]
    assert max_t(np.column_stack([values] * 6))[0] == alone
    others = generator.normal(size=(10, 5))
    assert max_t(np.column_stack([values, others]))[0] > alone


def test_step_down_is_monotone_and_never_below_the_single_tests() -> None:
    values = np.random.default_rng(13).normal(0.4, 1.0, size=(9, 6))
    adjusted = max_t(values)
    alone = np.array([max_t(values[:, [k]])[0] for k in range(6)])
    assert np.all(adjusted >= alone)
    order = np.argsort(-np.abs(values.sum(0)) / np.sqrt((values**2).sum(0)))
    assert np.all(np.diff(adjusted[order]) >= 0)


def test_no_difference_at_all_gives_one() -> None:
    assert max_t(np.zeros((8, 2))).tolist() == [1.0, 1.0]


def test_an_arm_that_never_answers_is_significant() -> None:
    assert max_t(np.full((8, 1), math.inf))[0] == 2 / 256


def test_a_missing_block_counts_as_no_difference() -> None:
    values = np.array([0.5, 0.7, 0.6, 0.4, 0.9, 0.8, math.nan])
    assert max_t(values[:, None])[0] == max_t(values[:-1, None])[0]


def test_many_blocks_are_sampled_and_agree_with_the_t_test() -> None:
    values = np.random.default_rng(21).normal(0.25, 1.0, size=60)
    expected = stats.ttest_1samp(values, 0.0).pvalue
    assert max_t(values[:, None], seed=1)[0] == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("skewed", [False, True])
def test_family_wise_error_under_no_difference(skewed: bool) -> None:
    """400 experiments, 4 arms x 3 classes against one baseline, none better.

    The skewed baseline breaks the joint symmetry that max-T assumes; with 12 blocks the
    error must still be near 5 % (a binomial of 400 has standard deviation 0.011).
    """
    generator = np.random.default_rng(1234 + skewed)
    rejected = 0
    for _ in range(400):
        shape = (12, 5, 3)
        logs = (
            generator.exponential(size=shape)
            if skewed
            else generator.normal(size=shape)
        )
        contrasts = (logs[:, 1:] - logs[:, :1]).reshape(12, -1)
        rejected += bool(np.min(max_t(contrasts)) <= 0.05)
    assert 0.02 <= rejected / 400 <= 0.075
