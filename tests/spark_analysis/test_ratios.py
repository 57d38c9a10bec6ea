"""Ratios of values that may be zero or infinite, by their limits."""

from __future__ import annotations

import math

import pytest

from spark_analysis.statistics.ratios import factor, log_ratio

INFINITE = math.inf


@pytest.mark.parametrize(
    ("value", "base", "log"),
    [
        (1.0, 1.0, 0.0),
        (0.0, 0.0, 0.0),
        (INFINITE, INFINITE, 0.0),
        (1.0, 0.0, INFINITE),
        (INFINITE, 1.0, INFINITE),
        (INFINITE, 0.0, INFINITE),
        (0.0, 1.0, -INFINITE),
        (1.0, INFINITE, -INFINITE),
        (0.0, INFINITE, -INFINITE),
        (math.e**2, 1.0, 2.0),
        (1.0, math.e**2, -2.0),
    ],
)
def test_the_log_of_a_ratio_is_told_wherever_it_has_a_limit(
    value: float, base: float, log: float
) -> None:
    assert log_ratio(value, base) == pytest.approx(log)
    assert log_ratio(base, value) == pytest.approx(-log)


def test_a_ratio_comes_back_from_its_logarithm() -> None:
    assert factor(log_ratio(3.0, 2.0)) == pytest.approx(1.5)
    assert factor(-INFINITE) == 0.0
    assert factor(699.0) == pytest.approx(math.exp(699.0))
    # 2^1024, the first number beyond the floats, is e^709.78.
    assert factor(710.0) == INFINITE
    assert factor(INFINITE) == INFINITE
