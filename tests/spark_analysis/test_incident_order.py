"""The order of arms in a measure: who is ahead for certain, by known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from spark_analysis.incidents.order import order_of, paired_p


def test_the_p_of_differences_is_students() -> None:
    rng = np.random.default_rng(4453)
    for shift in (0.0, 0.3, 2.0):
        differences = rng.normal(shift, 1.0, 9)
        expected = ttest_1samp(differences, 0.0).pvalue
        assert paired_p(differences) == pytest.approx(expected)


def test_where_something_never_ended_signs_decide() -> None:
    # Seven of eight have one sign: 2 (1 + 8) / 2^8.
    seven = np.array([math.inf, 1, 2, 3, 4, 5, 6, -1])
    assert paired_p(seven) == pytest.approx(2 * 9 / 256)
    # What is even says nothing: two of two.
    assert paired_p(np.array([math.inf, 1.0, 0.0])) == pytest.approx(0.5)


def test_no_difference_is_no_evidence_and_one_alone_neither() -> None:
    assert paired_p(np.zeros(8)) == 1.0
    assert paired_p(np.array([3.0])) == 1.0
    assert paired_p(np.full(8, 3.0)) == 0.0


def test_arms_stand_by_their_means_and_ahead_is_who_is_shown_to_be() -> None:
    block = np.arange(8.0)
    order = order_of(
        {
            "fifo": 200 + 3 * block,
            "planes": 20 + block,
            "wfq": 21 + np.array([3, -4, 5, -6, 2, -3, 4, -2]) + block,
            "priority": 19 + block,
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
