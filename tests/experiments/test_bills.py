"""What rows say that requests cost, against a broker whose costs are known."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.design.calibration import Calibration, Cost
from experiments.running.calibrating.bills import Bills, bills, by_bills
from tests.experiments.served_in_turn import Parts, serve

PARTS = Parts(
    reading_us=6.0,
    admitting_us=4.0,
    turning_us=30.0,
    waking_us=15.0,
    writing_us=20.0,
    event_loop_us=15.0,
    settling_us=45.0,
    travel_us=10.0,
    rousing_us=8.0,
    returning_us=3.0,
)
IN_IDLE_US = 30.0
HANDLER_US = {"urgent": 90.0, "bulk": 300.0}
NOTHING = Calibration(
    source="a test", costs={name: Cost(mean_us=1.0) for name in HANDLER_US}
)


def run(rng: np.random.Generator, parts: Parts = PARTS, cv: float = 0.3) -> Bills:
    """Play bursts of bulk, and single urgent requests between and amid them."""
    bursts_us = np.arange(10) * 46_000.0
    bulk_us = (bursts_us[:, None] + rng.uniform(0, 1500, (10, 20))).ravel()
    urgent_us = rng.uniform(0, 460_000, 150)
    sent_us = np.concatenate([bulk_us, urgent_us])
    traffic = np.array(["bulk"] * len(bulk_us) + ["urgent"] * len(urgent_us))
    mean_us = np.array([HANDLER_US[name] for name in traffic])
    # A gamma's coefficient of variation is one over the root of its shape.
    shares = rng.gamma(cv**-2, cv**2, len(traffic)) if cv else np.ones(len(traffic))
    order = np.argsort(sent_us)
    served = serve(
        sent_us[order],
        (mean_us * shares)[order],
        parts,
        ids=order,
        in_idle_us=IN_IDLE_US,
    )
    found = bills(served.rows, list(traffic), served.cpu_s, 0.0)
    assert found is not None
    return found


def calibrated(parts: Parts = PARTS, cv: float = 0.3, seed: int = 1) -> Calibration:
    rng = np.random.default_rng(seed)
    return by_bills(NOTHING, [run(rng, parts, cv) for _ in range(12)])


def test_parts_are_told_apart_by_who_came_behind_others() -> None:
    found = calibrated()
    # What several are read for is told from what each is billed when its turn comes.
    assert found.reading_us == pytest.approx(10.0, abs=0.5)
    # Where the broker was idle a turn comes at once.
    waking_us = PARTS.waking_us + PARTS.turning_us
    assert found.waking_us == pytest.approx(waking_us, abs=1.0)
    assert found.writing_us == pytest.approx(PARTS.writing_us, abs=0.1)
    assert found.unbilled_us == pytest.approx(PARTS.unbilled_us, abs=2.0)
    # Who comes while it settles is taken for one that found it idle.
    assert found.settling_us == pytest.approx(PARTS.settling_us, rel=0.15)
    assert found.turning_us == pytest.approx(PARTS.turning_us, abs=0.5)
    assert found.travel_us == pytest.approx(PARTS.travel_us)
    assert found.rousing_us == pytest.approx(PARTS.rousing_us, abs=3.0)
    assert found.returning_us == pytest.approx(PARTS.returning_us, abs=0.1)


def test_whoever_is_read_first_is_told_from_those_behind() -> None:
    rng = np.random.default_rng(4)
    due_us = np.sort(rng.uniform(0, 200_000, 800))
    served = serve(due_us, rng.uniform(50, 200, 800), PARTS)
    found = bills(served.rows, ["urgent"] * 800, served.cpu_s, 0.0)
    assert found is not None
    assert 0.2 < served.turning_share < 0.9
    assert found.turning_share == pytest.approx(served.turning_share, abs=0.02)


def test_a_cost_has_a_mean_for_either_state_of_the_broker() -> None:
    for name, cost in calibrated().costs.items():
        busy_us = HANDLER_US[name] + PARTS.prior_us + PARTS.unbilled_us
        more_us = IN_IDLE_US + PARTS.waking_us + PARTS.settling_us
        assert cost.busy_us == pytest.approx(busy_us, rel=0.03), name
        assert cost.idle_us == pytest.approx(busy_us + more_us, rel=0.06), name
        assert cost.low_us is not None
        assert cost.high_us is not None
        assert cost.low_us <= cost.mean_us <= cost.high_us


def test_costs_of_all_are_the_cpu_of_all() -> None:
    rng = np.random.default_rng(3)
    sent_us = np.sort(rng.uniform(0, 1e6, 500))
    served = serve(sent_us, np.full(500, 100.0), PARTS, in_idle_us=IN_IDLE_US)
    of_all = bills(served.rows, ["urgent"] * 500, served.cpu_s, 0.0)
    assert of_all is not None
    assert of_all.costs_us["urgent"].sum() == pytest.approx(served.cpu_s * 1e6)


@pytest.mark.parametrize("cv", [0.1, 0.3, 0.6])
def test_a_spread_is_that_of_single_requests(cv: float) -> None:
    found = calibrated(cv=cv)
    for name, handler_us in HANDLER_US.items():
        cost = found.costs[name]
        shares = np.array(cost.spread)
        assert len(shares) == 50
        assert shares.mean() == pytest.approx(1.0, abs=1e-4)
        assert list(shares) == sorted(shares)
        # Its handler's, in what it costs; most of what equal parts keep of it.
        expected = cv * handler_us / cost.mean_us
        assert 0.85 * expected < shares.std() < 1.2 * expected, name


def test_requests_that_cost_all_the_same_have_no_spread() -> None:
    for cost in calibrated(cv=0.0).costs.values():
        # But for those few that came while it settled.
        assert cost.spread == pytest.approx([1.0] * 50, abs=0.2)
        assert cost.spread[5:] == pytest.approx([1.0] * 45, abs=0.02)


def test_one_that_waited_for_a_cpu_does_not_make_a_spread() -> None:
    rng = np.random.default_rng(5)
    sent_us = np.sort(rng.uniform(0, 2e6, 1000))
    handler_us = np.full(1000, 100.0)
    handler_us[7] = 50_000.0
    served = serve(sent_us, handler_us, Parts(reading_us=10.0))
    found = bills(served.rows, ["urgent"] * 1000, served.cpu_s, 0.0)
    assert found is not None
    cost = by_bills(NOTHING, [found]).costs["urgent"]
    assert cost.spread[-1] < 2.0


def test_a_broker_that_was_never_busy_has_one_mean() -> None:
    sent_us = np.arange(60) * 10_000.0
    served = serve(sent_us, np.full(60, 100.0), PARTS)
    found = bills(served.rows, ["urgent"] * 60, served.cpu_s, 0.0)
    assert found is not None
    # None was read with another, so all that comes before a handler is reading.
    assert found.reading_us == pytest.approx(PARTS.prior_us + PARTS.waking_us)
    cost = by_bills(NOTHING, [found]).costs["urgent"]
    assert cost.mean_us == pytest.approx(250.0 - 15.0)
    assert cost.busy_us is None
    assert cost.idle_us is None
    assert found.settling_us == 0.0


def test_an_entry_without_requests_keeps_what_was_guessed() -> None:
    sent_us = np.arange(60) * 10_000.0
    served = serve(sent_us, np.full(60, 100.0), PARTS)
    found = bills(served.rows, ["urgent"] * 60, served.cpu_s, 0.0)
    assert found is not None
    assert by_bills(NOTHING, [found]).costs["bulk"] == NOTHING.costs["bulk"]


def test_a_warm_up_is_not_asked() -> None:
    """Its requests cost more, and the broker's CPU is that of all the same."""
    sent_us = np.arange(120) * 10_000.0
    handler_us = np.where(sent_us < 0.6e6, 900.0, 100.0)
    served = serve(sent_us, handler_us, PARTS)
    found = bills(served.rows, ["urgent"] * 120, served.cpu_s, 0.6)
    assert found is not None
    every_us = 100.0 + PARTS.prior_us + PARTS.waking_us + PARTS.unbilled_us
    every_us += PARTS.settling_us
    assert found.costs_us["urgent"] == pytest.approx([every_us] * 60)
    assert len(found.idle["urgent"]) == 60
    assert bills(served.rows, ["urgent"] * 120, served.cpu_s, 1.2) is None
