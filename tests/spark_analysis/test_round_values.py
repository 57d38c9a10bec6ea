"""Quantiles of episodes: do their intervals cover, also where a rule says when to stop?

Latencies of a round share a factor, as the requests of a burst share its backlog, and
the two arms of a round share part of it, as they met the same requests. All factors are
lognormal, so the quantiles are known in closed form. A binomial share of 300 at 0.95
has a standard deviation of 0.0126.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri

from spark_analysis.statistics.intervals import mean_interval
from spark_analysis.statistics.rounds import half_width, round_values

Rounds = list[npt.NDArray[np.float64]]
EXPERIMENTS = 300
P99, P95, P50 = Fraction(99, 100), Fraction(19, 20), Fraction(1, 2)


def draw(
    rng: np.random.Generator,
    rounds: int,
    requests: int,
    of_round: float,
    of_request: tuple[float, float],
) -> tuple[Rounds, Rounds]:
    """Return two arms' ascending rounds; spreads of logs by round and by request."""
    shared = rng.standard_normal((rounds, 1))
    own = 0.7 * shared + math.sqrt(1 - 0.7**2) * rng.standard_normal((rounds, 1))
    arms = []
    for factor, spread in zip((shared, own), of_request, strict=True):
        noise = rng.standard_normal((rounds, requests))
        arms.append(list(np.sort(np.exp(of_round * factor + spread * noise), axis=1)))
    return arms[0], arms[1]


def values(rounds: Rounds, level: Fraction) -> npt.NDArray[np.float64]:
    return round_values(rounds, np.sort(np.concatenate(rounds)), level)


def logs_of(arms: tuple[Rounds, Rounds], level: Fraction) -> npt.NDArray[np.float64]:
    base, arm = arms
    return np.asarray(np.log(values(arm, level) / values(base, level)))


def true_log(
    level: Fraction, of_round: float, of_request: tuple[float, float]
) -> float:
    """Logs are normal: a quantile is z standard deviations from the mean."""
    base, arm = (math.hypot(of_round, spread) for spread in of_request)
    return float((arm - base) * ndtri(float(level)))


def test_the_geometric_mean_of_a_rounds_values_is_the_pooled_quantile() -> None:
    arm, _ = draw(np.random.default_rng(1), 30, 50, 1.0, (1.0, 1.0))
    for level in (P50, P95, P99):
        pooled = np.quantile(np.concatenate(arm), float(level), method="inverted_cdf")
        found = math.exp(np.mean(np.log(values(arm, level))))
        assert found == pytest.approx(pooled, rel=1e-12)


@pytest.mark.parametrize(
    ("level", "rounds", "of_round", "of_request"),
    [
        (P50, 40, 1.0, (1.0, 1.0)),
        (P95, 100, 1.0, (1.0, 0.5)),
        (P99, 100, 0.5, (1.0, 0.5)),
        (P99, 200, 1.0, (1.0, 1.0)),
    ],
)
def test_the_interval_of_a_ratio_covers(
    level: Fraction, rounds: int, of_round: float, of_request: tuple[float, float]
) -> None:
    rng = np.random.default_rng(1965)
    truth = true_log(level, of_round, of_request)
    covered = 0
    for _ in range(EXPERIMENTS):
        arms = draw(rng, rounds, 100, of_round, of_request)
        found = mean_interval(logs_of(arms, level), 0.95)
        covered += found.low <= truth <= found.high
    assert 0.92 <= covered / EXPERIMENTS <= 0.985


def test_it_is_the_round_that_counts_and_not_the_request() -> None:
    """Requests taken for independent would give an interval far too narrow."""
    rng = np.random.default_rng(1966)
    covered, experiments = 0, 50
    for _ in range(experiments):
        base, arm = draw(rng, 30, 20, 1.5, (0.5, 0.5))
        split = [
            [request[None] for round_ in side for request in round_]
            for side in (base, arm)
        ]
        error = np.hypot(*(_naive_error(side, P50) for side in split))
        difference = math.log(np.median(np.concatenate(arm))) - math.log(
            np.median(np.concatenate(base))
        )
        covered += abs(difference) <= 1.96 * error
    assert covered / experiments < 0.75


def _naive_error(requests: Rounds, level: Fraction) -> float:
    logs = np.log(values(requests, level))
    return float(np.std(logs, ddof=1) / math.sqrt(len(logs)))


def test_half_the_interval_is_what_the_rule_is_told() -> None:
    base, arm = draw(np.random.default_rng(3), 50, 30, 1.0, (1.0, 1.0))
    found = mean_interval(logs_of((base, arm), P95), 0.9)
    told = half_width([r[::-1] for r in arm], base, P95, 0.9)
    assert told == pytest.approx((found.high - found.low) / 2)
    assert half_width(arm[:1], base[:1], P95, 0.9) == math.inf


def test_a_round_moves_the_quantile_by_its_excess_times_woodruffs_slope() -> None:
    """All numbers by hand but for t(0.95, 2 degrees) = 2.920, of any table."""
    rounds = [np.arange(1.0, 41.0) + shift for shift in (0, 1, 5)]
    pooled = np.sort(np.concatenate(rounds))
    # 20, 19 and 21 of 40; of 120 the 60th is 22, and up to it there are 22 + 21 + 17.
    residuals = np.array([2.0, 1.0, -3.0])
    reach = 2.920 * math.sqrt(3 / 2 * 14) / 120
    low, high = (pooled[math.ceil(120 * (0.5 + it)) - 1] for it in (-reach, reach))
    slope = math.log(high / low) / (2 * reach)
    assert values(rounds, P50) == pytest.approx(
        22.0 * np.exp(-slope * residuals * 3 / 120), rel=1e-3
    )


def test_how_far_apart_arms_are_does_not_change_when_a_rule_stops() -> None:
    base, arm = draw(np.random.default_rng(4), 50, 30, 1.0, (1.0, 1.0))
    slower = [7.0 * each for each in arm]
    near, far = (half_width(it, base, P95, 0.95) for it in (arm, slower))
    assert far == pytest.approx(near)


def test_only_rounds_that_lost_requests_speak_of_an_infinite_quantile() -> None:
    whole, lossy = np.arange(1.0, 11.0), np.array([1.0, 2.0, 3.0, math.inf])
    found = round_values(
        [whole, lossy, whole], np.sort(np.concatenate([whole, lossy, whole])), P99
    )
    assert np.isnan(found[[0, 2]]).all()
    assert found[1] == math.inf
    assert half_width([whole, lossy], [whole, whole], P99, 0.95) == math.inf


def test_equal_latencies_move_nothing() -> None:
    rounds = [np.full(10, 5.0), np.full(10, 5.0), np.full(10, 5.0)]
    assert values(rounds, P95).tolist() == [5.0, 5.0, 5.0]
