"""The machine-speed gate: which rounds count, and that no latency has a say in it."""

from __future__ import annotations

import pytest

from experiments.running import speed

MS = 1_000_000


def test_a_round_counts_while_its_arms_met_about_the_same_machine() -> None:
    near = {"fifo": (4 * MS, 4 * MS), "wfq": (5 * MS, 7 * MS), "planes": (5 * MS,) * 2}
    assert speed.fault(near, band=1.5) == ""


def test_a_round_whose_machine_lurched_says_where() -> None:
    apart = {"fifo": (4 * MS, 4 * MS), "wfq": (4 * MS, 9 * MS), "planes": (8 * MS,) * 2}
    assert speed.fault(apart, band=1.5) == (
        "machine unsteady: a fixed loop took 2.00 times as long around the episode of "
        "planes as around that of fifo; up to 1.5 counts"
    )


def test_the_loop_around_an_episode_is_the_geometric_mean() -> None:
    assert speed.loop_ns((2 * MS, 8 * MS)) == pytest.approx(4 * MS)
