"""The variance inflation of a tail against known processes, and the gate's limits."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from spark_analysis.statistics.exceedance import BATCHES, tail, variance_inflation
from spark_analysis.statistics.quantiles import nearest_rank

P99 = Fraction(99, 100)


def test_independent_requests_have_no_inflation() -> None:
    runs = list(np.random.default_rng(5).exponential(size=(20, 5000)))
    assert variance_inflation(runs, 3.0) == pytest.approx(1.0, abs=0.25)


def test_clusters_of_k_inflate_k_times() -> None:
    """Every value repeated 25 times: the variance of a mean is exactly 25 fold."""
    generator = np.random.default_rng(6)
    runs = [np.repeat(generator.exponential(size=400), 25) for _ in range(40)]
    assert variance_inflation(runs, 2.0) == pytest.approx(25.0, rel=0.2)


def test_a_busy_queue_is_inflated_as_the_spectrum_says(
    mm1_sojourns: Callable[..., npt.NDArray[np.float64]],
) -> None:
    """M/M/1 at load 0.7: about 30 for the p99 (integrated autocorrelation by FFT)."""
    runs = list(mm1_sojourns(np.random.default_rng(7), 60, 10_000, 0.7))
    threshold = -np.log(0.01) / 0.3
    indicator = np.array(runs) > threshold
    centred = indicator - indicator.mean()
    spectrum = np.abs(np.fft.rfft(centred, 2 * 10_000, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum.sum(axis=0))[:400]
    integrated = 2 * covariance.sum() / covariance[0] - 1
    assert variance_inflation(runs, threshold) == pytest.approx(integrated, rel=0.25)


def test_a_shift_between_runs_is_the_intervals_business() -> None:
    generator = np.random.default_rng(8)
    runs = [generator.exponential(size=2000) * (1 + run % 4) for run in range(12)]
    assert variance_inflation(runs, 6.0) == pytest.approx(1.0, abs=0.3)


def test_one_cluster_a_run_weighs_as_many_as_there_are_runs() -> None:
    run = np.concatenate([np.zeros(990), np.ones(10)])
    found = tail([run] * 8, P99, threshold=0.5)
    assert found.exceedances == 80
    assert found.effective == pytest.approx(8, rel=0.1)


def test_alternating_requests_earn_no_credit() -> None:
    assert variance_inflation([np.tile([0.0, 1.0], 500)], 0.5) == 1.0


def test_runs_shorter_than_a_batch_are_taken_as_they_are() -> None:
    runs = [np.arange(float(BATCHES - 1))] * 3
    assert variance_inflation(runs, 4.0) == 1.0
    assert tail(runs, P99, nearest_rank(np.sort(np.concatenate(runs)), P99))[0] == 1


def test_exceedances_are_the_nominal_ones() -> None:
    assert tail([np.zeros(1000)], P99, threshold=0.0) == (10, 1.0, 10.0)


def test_ties_that_come_in_one_cluster_weigh_as_one() -> None:
    """Twenty requests of one backlog time out together: nothing lies above the p99."""
    run = np.concatenate([np.linspace(0.0, 1.0, 980), np.full(20, 5.0)])
    found = tail([run] * 8, P99, threshold=5.0)
    assert found.exceedances == 80
    assert found.effective < 8
