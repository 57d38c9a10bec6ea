"""Coverage of the intervals on dependent requests: sessions of an M/M/1 queue.

Sojourn times of an M/M/1 queue are exponential in the limit, so the true quantiles are
known, and the requests of a session are strongly dependent. A binomial share of 200 at
0.95 has standard deviation 0.015.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from spark_analysis.judging.cell_sessions import CellSessions, quantile_sessions
from spark_analysis.judging.cells import value_of
from spark_analysis.judging.contrast import contrast_of
from tests.spark_analysis.test_cells import P99, RULES

Sojourns = Callable[[np.random.Generator, int, int, float], npt.NDArray[np.float64]]
EXPERIMENTS = 200
SESSIONS = 12
LOAD = 0.7


def sessions_of(times: npt.NDArray[np.float64]) -> CellSessions:
    return quantile_sessions(dict(enumerate(times)), Fraction(99, 100))


def test_the_interval_of_a_pooled_quantile_covers(mm1_sojourns: Sojourns) -> None:
    """A dozen effective exceedances: slightly more than the gate's minimum."""
    generator = np.random.default_rng(2024)
    truth = -math.log(0.01) / (1 - LOAD)
    covered = 0
    for _ in range(EXPERIMENTS):
        cell = sessions_of(mm1_sojourns(generator, SESSIONS, 3_000, LOAD))
        found = value_of(cell, P99, 0.95)
        covered += found.low <= truth <= found.high
    assert covered / EXPERIMENTS >= 0.88


def test_requests_taken_as_independent_do_not_cover(mm1_sojourns: Sojourns) -> None:
    """The same requests, distributed over sessions at random, lose their dependence.

    The interval then treats requests as independent, and covers far less often.
    """
    generator = np.random.default_rng(77)
    truth = -math.log(0.01) / (1 - LOAD)
    covered = 0
    for _ in range(60):
        times = mm1_sojourns(generator, SESSIONS, 3_000, LOAD).ravel()
        shuffled = generator.permutation(times).reshape(SESSIONS, -1)
        found = value_of(sessions_of(shuffled), P99, 0.95)
        covered += found.low <= truth <= found.high
    assert covered / 60 < 0.65


def test_the_interval_of_a_ratio_covers_and_equal_queues_rarely_differ(
    mm1_sojourns: Sojourns,
) -> None:
    """Arms 1 and 2 are one queue, arm 3 is slower by 1.3; each session has a factor.

    A true difference of 30 % is called equivalent within 5 % only by the test's own
    error.
    """
    generator = np.random.default_rng(99)
    rejected = covered = same = 0
    for _ in range(EXPERIMENTS):
        session = np.exp(generator.normal(0.0, 0.3, (SESSIONS, 1)))
        base, again, slower = (
            sessions_of(mm1_sojourns(generator, SESSIONS, 300, LOAD) * factor * session)
            for factor in (1.0, 1.0, 1.3)
        )
        for arm, truth in ((again, 1.0), (slower, 1.3)):
            found = contrast_of(arm, base, P99, RULES)
            covered += found.ratio.low <= truth <= found.ratio.high
            assert found.p is not None
            assert found.p_same is not None
            rejected += truth == 1.0 and found.p < 0.05
            same += truth == 1.3 and found.p_same < 0.05
    assert rejected / EXPERIMENTS <= 0.05 + 3 * 0.015
    assert covered / (2 * EXPERIMENTS) >= 0.95 - 3 * 0.011
    assert same / EXPERIMENTS <= 0.05
