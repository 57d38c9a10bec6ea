"""Exact quantiles against NumPy, and against values worked out by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_analysis.recordings.manifest import exact_quantile
from spark_analysis.statistics.quantiles import nearest_rank, rank


@given(
    values=st.lists(st.floats(0, 1e12), min_size=1, max_size=200),
    quantile=st.sampled_from([0.25, 0.5, 0.75, 0.875]),
)
def test_nearest_rank_is_numpys_inverted_cdf(
    values: list[float], quantile: float
) -> None:
    """Levels are exact binary floats, so NumPy cannot round the rank."""
    expected = np.quantile(values, quantile, method="inverted_cdf")
    assert nearest_rank(np.sort(values), exact_quantile(quantile)) == expected


@pytest.mark.parametrize(
    ("count", "quantile", "expected"),
    [
        (100, 0.99, 99),
        (101, 0.99, 100),
        (100, 0.07, 7),
        (1000, 0.999, 999),
        (1, 0.5, 1),
    ],
)
def test_rank_is_the_smallest_that_covers_the_share(
    count: int, quantile: float, expected: int
) -> None:
    """100 x 0.07 is 7.000000000000001 in floats, and its ceiling would be 8."""
    assert rank(count, exact_quantile(quantile)) == expected


def test_a_decimal_is_taken_at_its_word() -> None:
    assert exact_quantile(0.999) == Fraction(999, 1000)


@pytest.mark.parametrize("quantile", [0.0, 1.0, 99.0, -0.5])
def test_a_level_outside_the_open_unit_interval_is_refused(quantile: float) -> None:
    with pytest.raises(ValueError, match=repr(quantile)):
        exact_quantile(quantile)


def test_unanswered_requests_push_the_quantile_to_infinity() -> None:
    ninety_eight = np.arange(1.0, 99.0)
    two_lost = np.append(ninety_eight, [math.inf, math.inf])
    assert nearest_rank(two_lost, exact_quantile(0.98)) == 98.0
    assert nearest_rank(two_lost, exact_quantile(0.99)) == math.inf
