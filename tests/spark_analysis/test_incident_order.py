"""The order of arms in a measure: who is ahead for certain, by known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from spark_analysis.incidents.order import order_of
from spark_analysis.statistics.difference import difference_p

BLOCK = np.arange(8.0)


def test_the_unit_of_a_measure_changes_nothing() -> None:
    """Milliseconds or seconds, and what the same differences give as logarithms."""
    rng = np.random.default_rng(4453)
    for shift in (0.3, 1.1, 2.0):
        shifted = rng.normal(shift, 1.0, 9)
        (p,) = difference_p(shifted[:, None], ["incident"])
        for unit in (1e-6, 1.0, 1e6):
            order = order_of({"a": shifted * unit, "b": np.zeros(9)}, alpha=0.05)
            assert (order.ahead == {("b", "a")}) == (p < 0.05)


def test_where_something_never_ended_signs_decide() -> None:
    """Of eight incidents seven have one sign: 2 (1 + 8) / 2^8; of all eight 2 / 2^8."""
    zeros = np.zeros(8)
    seven = np.array([math.inf, 1, 2, 3, 4, 5, 6, -1])
    assert order_of({"a": seven, "b": zeros}, alpha=0.07).ahead == set()
    assert order_of({"a": seven, "b": zeros}, alpha=0.08).ahead == {("b", "a")}
    eight = np.abs(seven)
    assert order_of({"a": eight, "b": zeros}, alpha=0.007).ahead == set()
    assert order_of({"a": eight, "b": zeros}, alpha=0.008).ahead == {("b", "a")}


@pytest.mark.parametrize(("incidents", "ahead"), [(1, 0), (2, 0), (5, 0), (6, 1)])
def test_the_same_difference_in_a_few_incidents_is_no_evidence(
    incidents: int, ahead: int
) -> None:
    """Two incidents with a record lost each, beside none: chance does it in a half."""
    order = order_of({"a": [3.0] * incidents, "b": [2.0] * incidents}, alpha=0.05)
    assert len(order.ahead) == ahead
    assert not order_of({"a": [3.0] * 8, "b": [3.0] * 8}, alpha=0.05).ahead


def test_arms_stand_by_their_means_and_ahead_is_who_is_shown_to_be() -> None:
    order = order_of(
        {
            "fifo": 200 + 3 * BLOCK,
            "planes": 20 + BLOCK,
            "wfq": 21 + np.array([3, -4, 5, -6, 2, -3, 4, -2]) + BLOCK,
            "priority": 19 + BLOCK,
        },
        alpha=0.05,
    )
    assert order.arms == ("priority", "planes", "wfq", "fifo")
    # Planes are 1 behind in every block; wfq is behind on average, and for certain not.
    assert order.best == ("priority", "wfq")
    assert order.ahead == {
        ("priority", "planes"),
        ("priority", "fifo"),
        ("planes", "fifo"),
        ("wfq", "fifo"),
    }


def test_an_arm_that_never_recovers_comes_last() -> None:
    order = order_of(
        {"fifo": [math.inf] * 12, "planes": [5.0] * 12, "wfq": [math.inf] * 12},
        alpha=0.05,
    )
    assert (order.arms[0], order.best) == ("planes", ("planes",))
    assert order.ahead == {("planes", "fifo"), ("planes", "wfq")}


def test_arms_that_are_alike_are_rarely_ordered_though_one_has_a_heavy_tail() -> None:
    """One arm of three is skewed, no mean differs, 200 times; Student's t errs in 0.15.

    With an error of 0.05 more than 20 of 200 are as unlikely as 0.001.
    """
    rng = np.random.default_rng(32)
    alarms = by_t = 0
    for _ in range(200):
        skewed = rng.lognormal(size=8) - math.exp(0.5)
        calm = rng.normal(0, 0.05, (2, 8))
        values = {"fifo": 10 + skewed, "planes": 10 + calm[0], "wfq": 10 + calm[1]}
        alarms += bool(order_of(values, alpha=0.05).ahead)
        by_t += ttest_1samp(skewed - calm[0], 0.0).pvalue < 0.05
    assert by_t > 20
    assert alarms <= 20
