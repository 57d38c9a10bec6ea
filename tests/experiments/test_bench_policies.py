"""The bench of policies reports how costs grow, relative to a heap of the same jobs."""

import pytest

from bench import policies
from schedulers import POLICIES


def test_growth_is_the_cost_at_the_longest_queue_over_that_at_the_middle(monkeypatch):
    ours = {10: 50.0, 1_000: 100.0, 100_000: 150.0}
    monkeypatch.setattr(policies, "_policy_ns", lambda name, length: ours[length])
    theirs = {10: 20.0, 1_000: 50.0, 100_000: 200.0}
    monkeypatch.setattr(policies, "_heapq_ns", theirs.__getitem__)
    rows = list(policies.rows())
    growth = [row for row in rows if "growth" in row.name]
    assert len(rows) == 4 * len(POLICIES)
    assert [row.name.split(",")[0] for row in growth] == [
        f"push+pop {name}" for name in POLICIES
    ]
    for row in growth:
        assert (row.ours, row.theirs, row.unit) == (1.5, 4.0, "times")
        assert row.ratio == pytest.approx(4 / 1.5)
