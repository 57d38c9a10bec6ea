"""What a policy and a reader use, from bills that are known."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.design.calibration import Cost
from experiments.running.calibrating.bills import Bills
from experiments.running.calibrating.under_arms import under_arms

COSTS = {
    "urgent": Cost(mean_us=150.0, busy_us=100.0, idle_us=200.0),
    "bulk": Cost(mean_us=500.0),
}
# Over what the baseline's requests of an entry cost in the same state.
USES = {"wfq": {"urgent": 1.1, "bulk": 1.03}, "planes": {"urgent": 1.0, "bulk": 1.2}}


def billed(
    rng: np.random.Generator, uses: dict[str, float], idle_share: float, slow: float
) -> Bills:
    """Bill requests of a round, which is on a machine that is ``slow``."""
    idle = rng.random(40) < idle_share
    of_state = {"urgent": np.where(idle, 200.0, 100.0), "bulk": np.full(40, 500.0)}
    return Bills(
        costs_us={
            name: us * uses.get(name, 1.0) * slow for name, us in of_state.items()
        },
        idle=dict.fromkeys(of_state, idle),
        reading_us=0.0,
        turning_us=0.0,
        turning_share=0.0,
        waking_us=0.0,
        writing_us=0.0,
        unbilled_us=0.0,
        settling_us=0.0,
        travel_us=0.0,
        rousing_us=None,
        returning_us=None,
    )


def test_each_entry_of_each_arm_beside_the_same_round_in_the_same_state() -> None:
    rng = np.random.default_rng(1)
    rounds = []
    for _ in range(20):
        slow = rng.uniform(0.5, 2.0)
        by_arm = {"fifo": [billed(rng, {}, 0.2, slow), billed(rng, {}, 0.3, slow)]}
        # Under other arms more requests find the broker idle, which is no cost of them.
        by_arm |= {arm: [billed(rng, uses, 0.8, slow)] for arm, uses in USES.items()}
        rounds.append(by_arm)
    found = under_arms(rounds, COSTS, "fifo")
    assert list(found) == ["planes", "wfq"]
    for arm, uses in USES.items():
        assert found[arm] == pytest.approx(uses, abs=1e-3), arm


def test_one_that_waited_for_a_cpu_is_no_cost_of_its_arm() -> None:
    rng = np.random.default_rng(2)
    disturbed = billed(rng, {}, 0.0, 1.0)
    disturbed.costs_us["bulk"][7] = 1e6
    rounds = [{"fifo": [billed(rng, {}, 0.0, 1.0)], "wfq": [disturbed]}]
    # Ten times the others, and not two thousand times.
    shares = under_arms(rounds, COSTS, "fifo")["wfq"]
    assert shares == {"bulk": pytest.approx(49 / 40), "urgent": 1.0}


def test_of_what_was_not_played_in_one_round_nothing_is_said() -> None:
    rng = np.random.default_rng(3)
    rounds = [
        {"fifo": [billed(rng, {}, 0.5, 1.0)]},
        {"wfq": [billed(rng, {}, 0.5, 3.0)]},
    ]
    assert under_arms(rounds, COSTS, "fifo") == {}
    one = billed(rng, {"urgent": 2.0}, 0.5, 1.0)
    del one.costs_us["bulk"]
    rounds = [{"fifo": [billed(rng, {}, 0.5, 1.0)], "wfq": [one]}]
    assert under_arms(rounds, COSTS, "fifo") == {"wfq": {"urgent": 2.0}}
