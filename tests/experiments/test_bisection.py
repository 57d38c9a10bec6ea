"""Bisection of the load: added levels, and the runs that a resume repeats."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.design.config import parse
from experiments.design.config_errors import ExperimentError
from experiments.design.points import points
from experiments.running.bisection import bracket
from experiments.running.launching import run_experiment
from tests.experiments.load_and_share import CONTROL, PRODUCE, content
from tests.experiments.unwatched import Unwatched


def bisected(**changes: Any) -> dict[str, Any]:
    """Return an experiment whose load is bisected; capacity is 1,000 requests/s."""
    made = copy.deepcopy(content())
    made["workload"]["traffic"][0]["arrivals"]["rate_per_s"] = 100
    made["workload"]["traffic"][1]["arrivals"]["rate_per_s"] = 900
    made["workload"]["traffic"][1]["slo_ms"] = 10.0
    made["workload"]["duration_s"] = 0.5
    made["sweep"] = {
        "design": "bisection",
        "class": "produce",
        "levels": [0.2, 1.8],
        "scale": [CONTROL, PRODUCE],
        "steps": 2,
        **changes,
    }
    return made


def run(directory: Path, made: dict[str, Any], *, resume: bool) -> dict[str, Any]:
    missing = run_experiment(
        parse(made), directory, Unwatched(), resume=resume, executor="sequential"
    )
    assert not missing
    found: dict[str, Any] = json.loads((directory / "manifest.json").read_text())
    return found


def levels(found: dict[str, Any]) -> list[float]:
    return [float(point["levels"]["load"]) for point in found["points"]]


def test_a_level_multiplies_every_number_of_scale() -> None:
    found = points(parse(bisected()))
    assert [point.name for point in found] == ["load=0.2", "load=1.8"]
    rates = [
        [each.arrivals.mean_rate_per_s() for each in it.experiment.workload.traffic]
        for it in found
    ]
    assert rates == [pytest.approx([20, 180]), pytest.approx([180, 1620])]


def test_a_bisection_adds_levels_and_a_resumed_one_repeats_none(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", bisected(), resume=False)
    # Two arms may bisect different halves.
    assert levels(whole)[:3] == [0.2, 1.8, 1.0]
    assert set(levels(whole)[3:]) <= {0.6, 1.4}
    assert len(levels(whole)) > 3
    assert all(each["valid"] for each in whole["runs"])
    assert len(whole["runs"]) == len(levels(whole)) * 2 * 2
    again = run(tmp_path / "whole", bisected(), resume=True)
    assert again["runs"] == whole["runs"]
    assert levels(again) == levels(whole)
    begun = run(tmp_path / "begun", bisected(steps=1), resume=False)
    assert levels(begun) == [0.2, 1.8, 1.0]
    further = run(tmp_path / "begun", bisected(), resume=True)
    assert levels(further) == levels(whole)
    assert {each["cell"] for each in begun["runs"]} <= {
        each["cell"] for each in further["runs"]
    }
    assert all(each["valid"] for each in further["runs"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": "control"}, "sweep.class: 'control' is no class with a slo_ms"),
        ({"levels": [0.5]}, "sweep.levels: found"),
        ({"levels": [0.5, 0.5]}, "two levels have the name '0.5'"),
        ({"steps": 21}, "sweep.steps: found 21"),
        ({"scale": []}, "sweep.scale: found"),
        ({"scale": ["workload.traffic.data.slo_ms"]}, "has only control, produce"),
    ],
)
def test_a_mistake_is_named_with_its_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        points(parse(bisected(**changes)))
    assert message in str(caught.value)


def test_a_measured_world_has_no_bisection() -> None:
    with pytest.raises(
        ExperimentError, match=r"sweep\.design: the live world measures"
    ):
        parse(bisected()).with_world("live")


@given(
    st.lists(st.integers(1, 10**5), min_size=2, max_size=10, unique=True),
    st.floats(0, 1.1e5),
)
def test_the_bracket_is_where_a_falling_share_crosses(
    loads: list[int], crossing: float
) -> None:
    shares = {float(load): float(load <= crossing) for load in loads}
    found = bracket(shares, 0.99)
    below = [load for load in loads if load <= crossing]
    above = [load for load in loads if load > crossing]
    if not below or not above:
        assert found is None
    else:
        assert found == (max(below), min(above))


def test_the_first_level_that_misses_ends_the_search() -> None:
    assert bracket({1.0: 1.0, 2.0: 0.5, 3.0: 1.0, 4.0: 0.0}, 0.9) == (1.0, 2.0)
    assert bracket({1.0: 0.0, 2.0: 1.0, 3.0: 0.0}, 0.9) is None
    assert bracket({1.0: 1.0}, 0.9) is None
