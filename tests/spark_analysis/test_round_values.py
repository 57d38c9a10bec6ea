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

from spark_analysis.statistics.difference import difference_p
from spark_analysis.statistics.intervals import mean_interval
from spark_analysis.statistics.rounds import half_width, round_values, tail_of_rounds

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


def found_different(logs: npt.NDArray[np.float64]) -> bool:
    """A difference needs the interval and the tests, as `judging.decision` has it."""
    found = mean_interval(logs, 0.95)
    if found.low <= 0 <= found.high:
        return False
    return bool(difference_p(logs[:, None], ["a"])[0] < 0.05)


def test_verdicts_hold_their_level_over_rounds() -> None:
    rng = np.random.default_rng(1967)
    rejected = 0
    for _ in range(EXPERIMENTS):
        rejected += found_different(logs_of(draw(rng, 60, 50, 1.0, (1.0, 1.0)), P95))
    # 0.0875 would be three standard deviations above 0.05.
    assert rejected / EXPERIMENTS < 0.0875


@pytest.mark.parametrize(
    ("precision", "of_request"), [(0.25, (1.0, 1.0)), (0.2, (1.0, 0.6))]
)
def test_the_sequential_rule_keeps_coverage_and_level(
    precision: float, of_request: tuple[float, float]
) -> None:
    """Looks after every 40 rounds, 240 at most: as a config would say."""
    rng = np.random.default_rng(1968)
    truth = true_log(P95, 1.0, of_request)
    covered = rejected = 0
    stopped = []
    for _ in range(EXPERIMENTS):
        base, arm = draw(rng, 240, 25, 1.0, of_request)
        for count in range(40, 241, 40):
            width = half_width(arm[:count], base[:count], P95, 0.95)
            if width <= math.log1p(precision):
                break
        stopped.append(count)
        logs = logs_of((base[:count], arm[:count]), P95)
        found = mean_interval(logs, 0.95)
        covered += found.low <= truth <= found.high
        rejected += found_different(logs - truth)
    assert min(stopped) < 200, "the rule never stops early: nothing is tested"
    assert len(set(stopped)) > 2
    assert 0.91 <= covered / EXPERIMENTS <= 0.985
    assert rejected / EXPERIMENTS < 0.0875


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


def test_a_quantile_that_one_round_alone_has_is_not_known_for_certain() -> None:
    """The hundred requests of one backlog end at once, and are the p99 of 40 rounds.

    They are one cluster, and without their round the p99 would be another: so are the
    arm's p99 and its ratio to one that has none of it, however many requests these are.
    """
    quick = [np.linspace(1.0, 2.0, 100) for _ in range(40)]
    slow = [*quick[:-1], np.full(100, 50.0)]
    found = tail_of_rounds(slow, P99, 50.0)
    assert found.exceedances == 40
    assert found.effective < 1
    assert np.ptp(values(slow, P99)) > 0
    assert not found_different(logs_of((quick, slow), P99))


def test_one_round_has_its_own_quantile() -> None:
    """A session that a machine ended early: one round is all that there is."""
    only = np.arange(1.0, 101.0)
    assert values([only], P99).tolist() == [99.0]
    assert tail_of_rounds([only], P99, 99.0) == (1, 1.0, 1.0)


def test_a_tail_that_comes_in_whole_rounds_weighs_like_rounds() -> None:
    """Of 100 rounds of 50 requests ten are slow: their 500 requests are 10 clusters.

    The design effect of clusters of size m that are all alike is m (Kish 1965).
    """
    rounds = [np.full(50, 100.0 if number < 10 else 1.0) for number in range(100)]
    found = tail_of_rounds(rounds, Fraction(9, 10), 1.0)
    assert found.exceedances == 500
    assert found.vif == pytest.approx(50, rel=0.02)
    assert found.effective == pytest.approx(10, rel=0.02)


def test_independent_requests_weigh_what_they_are() -> None:
    rng = np.random.default_rng(6)
    rounds = list(np.sort(rng.exponential(size=(400, 50)), axis=1))
    found = tail_of_rounds(
        rounds, P95, float(np.quantile(np.concatenate(rounds), 0.95))
    )
    assert found.exceedances == 1000
    assert found.vif == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize(
    ("rounds", "level"),
    [
        # Woodruff's interval wants two rounds, and a level that some lie below.
        ([np.arange(1.0, 101.0)], P95),
        ([np.arange(1.0, 11.0), np.arange(1.0, 11.0)], Fraction(1, 100)),
    ],
)
def test_where_rounds_cannot_be_compared_requests_count_alone(
    rounds: Rounds, level: Fraction
) -> None:
    found = tail_of_rounds(rounds, level, float(level * 100))
    pooled = np.concatenate(rounds)
    beyond = len(pooled) - math.floor(len(pooled) * level)
    assert found == (beyond, 1.0, beyond)
