"""Fixtures: a single-server queue with a known truth, recordings, one Spark session."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

Sojourns = Callable[[np.random.Generator, int, int, float], npt.NDArray[np.float64]]
WARM_UP = 2000


@pytest.fixture(scope="session")
def mm1_sojourns() -> Sojourns:
    """Sojourn times of an M/M/1 queue with service rate 1, by Lindley's recursion.

    Arguments: generator, runs, requests a run, load. In the long run the times are
    exponential with rate ``1 - load``.
    """
    return _mm1_sojourns


def _mm1_sojourns(
    generator: np.random.Generator, runs: int, count: int, load: float
) -> npt.NDArray[np.float64]:
    gaps = generator.exponential(1 / load, (runs, count + WARM_UP))
    services = generator.exponential(1.0, (runs, count + WARM_UP))
    steps = services[:, :-1] - gaps[:, 1:]
    walk = np.concatenate([np.zeros((runs, 1)), np.cumsum(steps, axis=1)], axis=1)
    waits = walk - np.minimum.accumulate(walk, axis=1)
    return np.asarray((waits + services)[:, WARM_UP:], dtype=np.float64)
