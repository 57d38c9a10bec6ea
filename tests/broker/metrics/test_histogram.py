"""Histogram quantiles compared with exact quantiles of the same values."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from broker.observation.histogram import Histogram, bounds_of, bucket_of

values = st.one_of(st.integers(0, 40), st.integers(0, 2**63))


@given(values)
def test_a_bucket_holds_its_values_and_is_an_eighth_wide_at_most(value):
    low, high = bounds_of(bucket_of(value))
    assert low <= value <= high
    assert high - low <= value / 8


def test_buckets_follow_one_another_without_gaps():
    buckets = [bounds_of(bucket) for bucket in range(400)]
    assert buckets[0] == (0, 0)
    for (_, high), (low, _) in itertools.pairwise(buckets):
        assert low == high + 1


@given(st.lists(values, min_size=1, max_size=60), st.floats(0.01, 1))
def test_a_quantile_is_exact_to_within_the_width_of_its_bucket(sample, q):
    histogram = Histogram()
    for value in sample:
        histogram.add(value)
    exact = sorted(sample)[math.ceil(q * len(sample)) - 1]
    assert abs(histogram.quantile(q) - exact) <= exact / 16 + 1e-9 * exact
    assert (histogram.count, histogram.sum) == (len(sample), sum(sample))


@given(st.lists(values, max_size=20), st.lists(values, max_size=20))
def test_merging_is_counting_both(first, second):
    one, two, both = Histogram(), Histogram(), Histogram()
    for histogram, sample in ((one, first), (two, second), (both, first + second)):
        for value in sample:
            histogram.add(value)
    one.merge(two)
    assert (one.count, one.sum) == (both.count, both.sum)
    assert all(one.quantile(q) == both.quantile(q) for q in (0.1, 0.5, 0.99))


def test_an_empty_histogram_has_no_quantiles():
    assert Histogram().quantile(0.99) == 0.0
