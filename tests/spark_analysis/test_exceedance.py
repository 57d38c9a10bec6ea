"""Effective exceedances of a tail, from its spread over sessions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from spark_analysis.statistics.exceedance import tail_of_sessions

P99 = Fraction(99, 100)


def test_independent_requests_weigh_one_each() -> None:
    counts = [2000] * 400
    drawn = np.random.default_rng(6).binomial(2000, 0.01, 400)
    found = tail_of_sessions(counts, drawn.tolist(), P99)
    assert found.exceedances == 8000
    assert found.vif == pytest.approx(1.0, abs=0.25)


def test_clusters_of_25_weigh_a_25th() -> None:
    """The design effect of clusters of equal requests is their size (Kish 1965)."""
    clusters = np.random.default_rng(7).binomial(80, 0.01, 400)
    found = tail_of_sessions([2000] * 400, (25 * clusters).tolist(), P99)
    assert found.vif == pytest.approx(25, rel=0.2)


def test_a_tail_in_one_session_alone_weighs_as_one() -> None:
    found = tail_of_sessions([1000] * 12, [120] + [0] * 11, P99)
    assert found.exceedances == 120
    assert found.effective == pytest.approx(1.0, rel=0.02)


def test_an_even_tail_earns_no_credit() -> None:
    assert tail_of_sessions([1000] * 12, [10] * 12, P99) == (120, 1.0, 120.0)


def test_exceedances_are_the_nominal_ones_where_many_are_equal() -> None:
    """In an idle computed world all requests may equal the quantile."""
    assert tail_of_sessions([500, 500], [500, 500], P99) == (10, 1.0, 10.0)


def test_one_session_has_no_spread() -> None:
    assert tail_of_sessions([1000], [10], P99) == (10, 1.0, 10.0)


def test_sessions_may_differ_in_length() -> None:
    """A ratio estimate: equal shares are not clustered."""
    counts = [1000, 2000, 3000]
    assert tail_of_sessions(counts, [10, 20, 30], P99).vif == 1.0
