"""Several worlds: where they agree, what is said where they do not, one report of all.

What a world found is made up, so the right word is known: the same ratios agree, a live
world that spreads over both sides of 1 has decided nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import Worlds, hold_together
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.quotient import quotient
from tests.spark_analysis.world_studies import study_in

if TYPE_CHECKING:
    pass


def together(virtual: Study, *others: Study, **silent: str) -> Worlds:
    return hold_together([*others, virtual], silent)


def agreement(worlds: Worlds, arm: str, class_name: str = "control") -> str:
    metric = worlds.witness.headline
    (found,) = [
        it for it in worlds.told("live", class_name, metric) if it.witness.arm == arm
    ]
    return found.agreement


def test_worlds_of_different_experiments_are_refused() -> None:
    virtual, live = (
        study_in("virtual", {"planes": 0.2}),
        study_in("live", {"planes": 1}),
    )
    live = replace(live, manifest=replace(live.manifest, name="another"))
    with pytest.raises(RecordingError, match="worlds of different experiments"):
        together(virtual, live)


# ---- the quotient ----


def test_of_normal_logarithms_the_quotient_has_the_classical_interval() -> None:
    # Half widths 0.3 and 0.4 add in squares: 0.5.
    over = Estimate(2.0, 2.0 * math.exp(-0.3), 2.0 * math.exp(0.3))
    under = Estimate(4.0, 4.0 * math.exp(-0.4), 4.0 * math.exp(0.4))
    found = quotient(over, under)
    assert found is not None
    expected = (0.5, 0.5 * math.exp(-0.5), 0.5 * math.exp(0.5))
    assert found == pytest.approx(expected)


def test_the_interval_of_a_quotient_covers_as_often_as_it_says() -> None:
    # Means of eight normal logarithms, t intervals of 95 %; 2000 pairs, so the bound is
    # four standard errors below.
    rng = np.random.default_rng(7)
    logs = rng.normal(0.0, [[[0.2]], [[0.4]]], (2, 2000, 8))
    half = 2.3646 * logs.std(axis=2, ddof=1) / math.sqrt(8)
    means = logs.mean(axis=2)
    covered = 0
    for number in range(2000):
        one, two = (
            Estimate(*np.exp(means[k, number] + half[k, number] * np.array([0, -1, 1])))
            for k in (0, 1)
        )
        found = quotient(one, two)
        assert found is not None
        covered += found.low <= 1.0 <= found.high
    assert covered / 2000 > 0.93


def test_what_is_not_bounded_stays_so_and_what_is_lost_has_no_quotient() -> None:
    open_above = Estimate(2.0, 1.0, math.inf)
    found = quotient(open_above, Estimate(1.0, 0.9, 1.1))
    assert found is not None
    assert found.high == math.inf
    assert 0 < found.low < 2.0
    assert quotient(Estimate(math.inf, 1.0, math.inf), open_above) is None
    assert quotient(open_above, Estimate(0.0, 0.0, 0.0)) is None


# ---- from recordings to one report ----
