"""Costs that differ: by what state a broker was found in, and from each other."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments.design import capacity
from experiments.design.config import load, parse
from experiments.design.config_errors import ExperimentError
from experiments.design.points import points
from experiments.load import trace
from experiments.running.calibrating.runs import baseline_alone
from experiments.running.runner import plan
from experiments.running.trials import trial_key
from tests.experiments.test_capacity import CONTENT, NOMINAL_US, machine, refusal

CONFIGS = Path(__file__).parents[2] / "experiments" / "configs"


def test_a_virtual_cell_depends_on_what_a_cost_is_where_the_broker_was_idle() -> None:
    keys = set()
    for idle_us in (300.0, 310.0):
        made = copy.deepcopy(CONTENT)
        states = {"busy_us": 150.0, "idle_us": idle_us}
        made["nominal"]["costs"]["control"] |= states
        keys.add(trial_key(next(plan(points(parse(made)))), "virtual", "c"))
    assert len(keys) == 2


def test_a_cost_that_is_spread_moves_no_rate_and_no_stretch() -> None:
    """Demands differ by as much, and their mean is the cost."""
    spread = (0.5, 0.7, 0.8, 2.0)
    made = copy.deepcopy(CONTENT)
    made["nominal"]["costs"]["bulk"]["spread"] = spread
    built, plain = parse(made), parse(CONTENT)
    elsewhere = machine(control=300.0, bulk=1500.0)
    factor = capacity.stretch(plain.with_machine(elsewhere))
    assert capacity.stretch(built.with_machine(elsewhere)) == pytest.approx(factor)
    drawn, constant = trace.generate(built, 0), trace.generate(plain, 0)
    for name in ("intended_ns", "connection", "traffic"):
        assert drawn.column(name) == constant.column(name)
    demands = {
        name: {
            demand
            for demand, entry in zip(
                drawn.column("demand_ns"), drawn.column("traffic"), strict=True
            )
            if entry == name
        }
        for name in NOMINAL_US
    }
    assert demands["control"] == {200_000}
    assert demands["bulk"] == {round(share * 1e6) for share in spread}
    assert drawn.sha256 != constant.sha256


def test_a_virtual_cell_depends_on_what_its_own_arm_uses() -> None:
    keys = set()
    for share in (1.1, 1.2):
        made = copy.deepcopy(CONTENT)
        made["arms"].append({"name": "wfq", "scheduler": "wfq"})
        made["nominal"]["arms"] = {"wfq": {"bulk": share}}
        by_arm = {it.arm.name: it for it in plan(points(parse(made)))}
        keys |= {(arm, trial_key(it, "virtual", "c")) for arm, it in by_arm.items()}
    assert sorted(Counter(arm for arm, _ in keys).items()) == [
        ("fifo", 1),
        ("fifo-again", 1),
        ("wfq", 2),
    ]


def test_costs_under_an_arm_that_there_is_not_are_refused(tmp_path: Path) -> None:
    quickstart = (CONFIGS / "quickstart.toml").read_text(encoding="utf-8")
    file = tmp_path / "quickstart.toml"
    file.write_text(quickstart.replace("\nwfq = ", "\nwqf = "), encoding="utf-8")
    with pytest.raises(ExperimentError, match=r"nominal\.arms: no arm is called 'wqf'"):
        load(file)


def test_costs_under_an_arm_are_of_traffic_that_there_is() -> None:
    made = copy.deepcopy(CONTENT)
    made["nominal"]["arms"] = {"fifo": {"bulk": 1.1, "blk": 1.1}}
    assert "arms.fifo: there is no cost of 'blk'" in refusal(made)


def test_turns_of_which_nobody_knows_how_often_are_refused() -> None:
    made = copy.deepcopy(CONTENT)
    made["nominal"]["turning_us"] = 20.0
    assert "turning_us is spent by turning_share: state both" in refusal(made)


def test_costs_under_an_arm_that_is_left_out_do_not_matter() -> None:
    """A part of the arms is played, in a calibration or because some were named."""
    built = load(CONFIGS / "quickstart.toml").with_schedulers(["fifo", "planes"])
    assert {arm.name for arm in built.arms} == {"fifo", "planes"}
    assert parse(baseline_alone(built).content()).arms[0].name == "fifo"


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ({"busy_us": 100.0}, "state both"),
        ({"busy_us": 210.0, "idle_us": 300.0}, "not between busy_us and idle_us"),
        ({"spread": [0.5, 1.0]}, "shares of a mean have mean 1, not 0.7500"),
    ],
)
def test_a_cost_whose_parts_do_not_fit_is_refused(
    cost: dict[str, Any], words: str
) -> None:
    made = copy.deepcopy(CONTENT)
    made["nominal"]["costs"]["control"] |= cost
    assert words in refusal(made)
