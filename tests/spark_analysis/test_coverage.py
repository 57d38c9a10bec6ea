"""Do the intervals cover and the tests hold their level? Measured, on dependent data.

Each simulated experiment is a handful of runs of an M/M/1 queue, whose sojourn times
are exponential: the truth is known, and the requests of a run are anything but
independent. A binomial share of 200 at 0.95 has standard deviation 0.015.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from spark_analysis.statistics.exceedance import tail
from spark_analysis.statistics.intervals import log_ratio_interval
from spark_analysis.statistics.paired import tost
from spark_analysis.statistics.quantiles import nearest_rank
from spark_analysis.statistics.sign_flip import max_t
from tests.spark_analysis.pooled import pooled_interval

Sojourns = Callable[[np.random.Generator, int, int, float], npt.NDArray[np.float64]]
EXPERIMENTS, RATIO_EXPERIMENTS = 200, 1000
LOAD = 0.7


@pytest.mark.parametrize(
    ("quantile", "count"), [("19/20", 4_000), ("99/100", 6_000), ("1/2", 2_000)]
)
def test_interval_of_a_pooled_quantile_covers(
    mm1_sojourns: Sojourns, quantile: str, count: int
) -> None:
    generator = np.random.default_rng(2024)
    level = Fraction(quantile)
    truth = -math.log(1 - float(level)) / (1 - LOAD)
    covered = 0
    for _ in range(EXPERIMENTS):
        runs = list(np.sort(mm1_sojourns(generator, 8, count, LOAD), axis=1))
        found = pooled_interval(runs, level, 0.95)
        covered += found.low <= truth <= found.high
    assert 0.92 <= covered / EXPERIMENTS <= 0.98


def test_interval_covers_where_latencies_are_coarse(mm1_sojourns: Sojourns) -> None:
    """Rounded up to tens, 0.9502 of all times are at most 10: the p95 is 10 by a hair.

    In half of the experiments the estimate is 20, and its interval must still reach
    down: the share up to 20 varies less than the share up to 10, which decides.
    """
    generator = np.random.default_rng(2025)
    covered = high = 0
    for _ in range(EXPERIMENTS):
        runs = np.ceil(mm1_sojourns(generator, 8, 2_000, LOAD) / 10) * 10
        found = pooled_interval(list(np.sort(runs, axis=1)), Fraction(19, 20), 0.95)
        covered += found.low <= 10 <= found.high
        high += found.value > 10
    assert 0.35 <= high / EXPERIMENTS <= 0.65
    assert covered / EXPERIMENTS >= 0.92


def test_requests_taken_as_independent_do_not_cover(mm1_sojourns: Sojourns) -> None:
    """Why the run is the unit: the same requests, dealt into runs at random.

    The interval then believes that requests are independent, and covers far less.
    """
    generator = np.random.default_rng(77)
    truth = -math.log(0.01) / (1 - LOAD)
    covered = 0
    for _ in range(60):
        values = mm1_sojourns(generator, 8, 6_000, LOAD).ravel()
        shuffled = generator.permutation(values).reshape(8, -1)
        found = pooled_interval(list(np.sort(shuffled)), Fraction(99, 100), 0.95)
        covered += found.low <= truth <= found.high
    assert covered / 60 < 0.6


def test_interval_of_a_ratio_covers_and_identical_arms_are_rarely_told_apart(
    mm1_sojourns: Sojourns,
) -> None:
    """1000 experiments of ten blocks: arms 1 and 2 are one queue, arm 3 is slower.

    A binomial share of 1000 at 0.05 has standard deviation 0.007. Arms are paired by a
    block's own factor. The third arm's true ratio is 1.3.
    """
    generator = np.random.default_rng(99)
    rejected = covered = covered_same = same = 0
    for _ in range(RATIO_EXPERIMENTS):
        block = np.exp(generator.normal(0.0, 0.3, size=10))
        logs = []
        for factor in (1.0, 1.0, 1.3):
            runs = mm1_sojourns(generator, 10, 300, LOAD) * factor * block[:, None]
            logs.append(
                [math.log(nearest_rank(run, Fraction(19, 20))) for run in np.sort(runs)]
            )
        values = np.array(logs)
        again, slower = values[1] - values[0], values[2] - values[0]
        rejected += bool(max_t(again[:, None])[0] <= 0.05)
        same += tost(slower, 0.05) < 0.05
        for difference, truth in ((again, 0.0), (slower, math.log(1.3))):
            found = log_ratio_interval(difference, 0.95)
            inside = found.low <= truth <= found.high
            covered, covered_same = (
                covered + inside,
                covered_same + (inside and not truth),
            )
    assert 0.03 <= rejected / RATIO_EXPERIMENTS <= 0.07
    assert 0.92 <= covered / (2 * RATIO_EXPERIMENTS) <= 0.98
    assert 0.92 <= covered_same / RATIO_EXPERIMENTS <= 0.98
    # A true 30 % is called "the same within 5 %" at most by the test's own error.
    assert same / RATIO_EXPERIMENTS <= 0.05


@pytest.mark.parametrize(
    ("count", "experiments", "effective", "low", "high"),
    [
        (3_500, 200, 3, 0.58, 0.78),
        (27_000, 100, 10, 0.79, 0.95),
        pytest.param(110_000, 100, 30, 0.86, 0.98, marks=pytest.mark.slow),
    ],
)
def test_how_often_an_interval_covers_that_rests_on_few_exceedances(
    mm1_sojourns: Sojourns,
    count: int,
    experiments: int,
    effective: int,
    low: float,
    high: float,
) -> None:
    """What the gate's bounds are worth: 0.69, 0.88 and 0.92 of a nominal 0.95.

    The p99 of two queues, load 0.7 and 0.9, over eight runs; long-run times are
    exponential, so the true ratio is 3. Bounds are three binomial deviations about the
    figures that DECISIONS.md and the quickstart quote.
    """
    generator, level = np.random.default_rng(30), Fraction(99, 100)
    covered, weights = 0, []
    for _ in range(experiments):
        light, heavy = (mm1_sojourns(generator, 8, count, load) for load in (0.7, 0.9))
        logs = [
            math.log(nearest_rank(np.sort(slow), level))
            - math.log(nearest_rank(np.sort(fast), level))
            for fast, slow in zip(light, heavy, strict=True)
        ]
        found = log_ratio_interval(np.array(logs), 0.95)
        covered += found.low <= math.log(3) <= found.high
        threshold = nearest_rank(np.sort(heavy, axis=None), level)
        weights.append(tail(list(heavy), level, threshold).effective)
    assert np.mean(weights) == pytest.approx(effective, rel=0.2)
    assert low <= covered / experiments <= high
