"""False discoveries over a map of points: by hand, and simulated."""

from __future__ import annotations

import numpy as np
import pytest

from spark_analysis.statistics.intervals import mean_interval
from spark_analysis.statistics.screening import coverage_level, discovery_q
from spark_analysis.statistics.sign_flip import max_t


def test_q_by_hand() -> None:
    """Of 4 p-values: 4 x 0.01 / 1, 4 x 0.02 / 2, 4 x 0.04 / 3, 1, made monotone."""
    q = discovery_q([0.04, 0.01, 1.0, 0.02])
    assert q.tolist() == pytest.approx([0.16 / 3, 0.04, 1.0, 0.04])
    assert discovery_q([]).tolist() == []


def test_intervals_widen_with_what_was_picked_from() -> None:
    assert coverage_level([0.01, 0.01], 0.05) == 0.95
    assert coverage_level([0.01, 0.9, 0.9, 0.9, 0.9], 0.05) == pytest.approx(0.99)
    # Nothing found, nothing picked: as if one had been.
    assert coverage_level([0.9, 0.9], 0.05) == 0.975


def test_a_map_is_wrong_in_one_of_twenty_entries_at_most_and_is_not_empty() -> None:
    """80 maps of 60 points with 12 blocks: at 20 points a difference, at 40 none.

    Points of a map share noise, as points under related traces do. Max-T over the whole
    map is safe, too, but finds less: the reason to count discoveries instead.
    """
    generator = np.random.default_rng(51)
    effect = np.where(np.arange(60) < 20, 0.12, 0.0)
    false_share, coverage, found, found_by_max_t = [], [], 0, 0
    for _ in range(80):
        noise = generator.normal(0, 0.1, size=(12, 60))
        logs = effect + noise + generator.normal(0, 0.05, size=(12, 1))
        alone = [float(max_t(logs[:, [k]])[0]) for k in range(60)]
        q = discovery_q(alone)
        picked = np.flatnonzero(q < 0.05)
        false_share.append(np.mean(picked >= 20) if len(picked) else 0.0)
        found += int(np.sum(picked < 20))
        found_by_max_t += int(np.sum(max_t(logs)[:20] < 0.05))
        level = coverage_level(list(q), 0.05)
        missed = [
            not found_.low <= effect[k] <= found_.high
            for k in picked
            for found_ in [mean_interval(logs[:, k], level)]
        ]
        coverage.append(np.mean(missed) if missed else 0.0)
    assert np.mean(false_share) <= 0.05
    assert np.mean(coverage) <= 0.06
    assert found > 1.8 * found_by_max_t
