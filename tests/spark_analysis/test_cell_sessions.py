"""Cells by session from plain arrays, against values worked out by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from spark_analysis.judging.cell_sessions import quantile_sessions

MEDIAN = Fraction(1, 2)


def test_each_value_is_an_exact_order_statistic() -> None:
    found = quantile_sessions(
        {
            4: np.array([3.0, 1.0, 2.0]),
            2: np.array([10.0, math.inf]),
            7: np.array([]),
            9: np.array([5.0]),
        },
        MEDIAN,
    )
    assert found.sessions == (2, 4, 9)
    assert found.values == (10.0, 2.0, 5.0)
    # The third of 1 2 3 5 10 inf.
    assert found.pooled == 3.0
    # The medians of 1 2 3 5, of 5 10 inf, and of 1 2 3 10 inf.
    assert found.without == (2.0, 10.0, 3.0)
    assert found.counts == (2, 3, 1)
    # At least 3: 10 and inf; 3; 5.
    assert found.exceedances == (2, 1, 1)


def test_one_session_has_nothing_to_be_left_out_of() -> None:
    found = quantile_sessions({0: np.array([1.0, 1.0, 4.0])}, MEDIAN)
    assert (found.values, found.pooled, found.exceedances) == ((1.0,), 1.0, (3,))
    assert math.isnan(found.without[0])
