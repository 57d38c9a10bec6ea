"""The studentised bootstrap and Holm's rule by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.bootstrap_t import RESAMPLES, bootstrap_t
from spark_analysis.statistics.step_down import holm

LEAST = 1 / (RESAMPLES + 1)


def test_many_blocks_agree_with_the_t_test() -> None:
    values = np.random.default_rng(21).normal(0.25, 1.0, size=60)
    expected = stats.ttest_1samp(values, 0.0).pvalue
    assert bootstrap_t(values[:, None], seed=1)[0] == pytest.approx(expected, abs=0.015)


def test_equal_differences_are_certain_and_none_are_nothing() -> None:
    """Rounding is no spread: the third column is 0.3 but for its last bits."""
    dusty = 0.1 * np.arange(1, 9) - 0.1 * np.arange(-2, 6)
    values = np.column_stack([np.full(8, -0.3), np.zeros(8), dusty])
    p = bootstrap_t(values)
    assert p.tolist() == [LEAST, 1.0, LEAST]


def test_two_blocks_by_hand() -> None:
    """Half of all resamples are one block twice, without spread; the others are 0."""
    values = np.array([[1.0], [1.1]])
    assert bootstrap_t(values)[0] == pytest.approx(0.5, abs=0.03)


def test_the_family_is_adjusted_as_one() -> None:
    generator = np.random.default_rng(8)
    values = generator.normal(0.8, 1.0, size=(10, 1))
    alone = bootstrap_t(values)[0]
    assert bootstrap_t(np.hstack([values] * 6))[0] == pytest.approx(alone)
    others = generator.normal(size=(10, 5))
    assert bootstrap_t(np.hstack([values, others]))[0] > alone


def rare(generator: np.random.Generator, blocks: int, contrasts: int) -> FloatArray:
    """Return contrasts that are nothing but in two blocks of 24."""
    noise = generator.normal(size=(blocks, contrasts))
    there = generator.random(size=(blocks, contrasts)) < 2 / 24
    return np.where(there, noise, 0.0)


def test_contrasts_that_are_the_same_in_most_blocks_leave_the_others_decided() -> None:
    """Two of five resamples miss all that they have, and so have no spread.

    As it was in ``inheritance.toml``, where the p of a ratio of 25 was 0.60.
    """
    generator = np.random.default_rng(36)
    once = np.zeros((36, 1))
    once[7] = 0.01
    four = np.zeros((36, 1))
    four[[3, 11, 20, 34], 0] = -0.001, -0.002, -0.0005, -0.1
    found = generator.normal(1.0, 0.3, size=(36, 2))
    p = bootstrap_t(np.hstack([once, found, four]))
    assert p[1:3].max() < 0.005
    assert min(p[0], p[3]) > 0.2
    # Two families of their own: each pays for the other, and for nothing else.
    assert p[1:3] == pytest.approx(2 * bootstrap_t(found))
    same = np.zeros((36, 1))
    assert bootstrap_t(np.hstack([found, same]))[:2] == pytest.approx(
        bootstrap_t(found)
    )


def test_a_family_with_rare_differences_keeps_its_level() -> None:
    generator = np.random.default_rng(1993)
    families = 400
    errors = sum(
        bootstrap_t(
            np.hstack([generator.normal(size=(24, 4)), rare(generator, 24, 3)])
        ).min()
        <= 0.05
        for _ in range(families)
    )
    # 0.05 and three standard errors.
    assert errors / families <= 0.083


def test_an_infinite_ratio_is_left_to_the_exact_test() -> None:
    lost = np.full(8, math.inf)
    noise = np.random.default_rng(3).normal(size=8)
    assert bootstrap_t(np.column_stack([lost, noise]))[0] == 0.0


def test_a_missing_block_is_left_out() -> None:
    """The six others decide as they do where there is no seventh."""
    values = np.array([0.5, 0.7, 0.6, 0.4, 0.9, 0.8])
    with_gap = np.append(values, math.nan)[:, None]
    assert bootstrap_t(with_gap)[0] == pytest.approx(
        bootstrap_t(values[:, None])[0], abs=0.005
    )


@pytest.mark.parametrize("blocks", [0, 1])
def test_without_blocks_to_draw_nothing_is_found(blocks: int) -> None:
    assert bootstrap_t(np.ones((blocks, 2))).tolist() == [1.0, 1.0]


def test_no_contrasts_have_no_p() -> None:
    assert bootstrap_t(np.ones((8, 0))).tolist() == []


# ---- Holm ----


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.02, 0.04 times 3, 2, 1 is 0.03, 0.04, 0.04."""
    assert holm(np.array([0.04, 0.01, 0.02])) == pytest.approx([0.04, 0.03, 0.04])
    assert holm(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).tolist() == []
