"""The interval of a comparison with an earlier commit."""

import math

import pytest

from bench.before import median_interval


# Tables of order statistics for the median at 95 % (Conover 1999, table A3; Dixon and
# Massey 1983, table A-25): the number of values outside the interval on each side.
@pytest.mark.parametrize(("count", "outside"), [(6, 0), (9, 1), (15, 3), (21, 5)])
def test_the_interval_is_that_of_the_tables(count, outside):
    values = list(range(count, 0, -1))
    assert median_interval(values) == (1 + outside, count - outside)


def test_few_values_bound_nothing():
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == (-math.inf, math.inf)
