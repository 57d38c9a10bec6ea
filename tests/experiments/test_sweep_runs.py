"""Sweeps: points in runs, traces and plan, and the runs that a resume repeats."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.design.config import parse
from experiments.design.config_errors import ExperimentError
from experiments.design.points import planned_points
from experiments.running import runner
from experiments.running.executors.sequential import Sequential
from experiments.worlds.model.model_world import Model
from tests.experiments.load_and_share import CONTROL, PRODUCE, Content, content, listed
from tests.experiments.unwatched import Unwatched


class Counting:
    """Counts the trials that it receives."""

    name = "sequential"
    lanes: int | None = 1

    def __init__(self) -> None:
        self.ran: list[str] = []
        self._executor = Sequential(Model(lambda: None))

    def outcomes(self, todo: Any) -> Any:
        for outcomes in self._executor.outcomes(todo):
            self.ran += [outcome.trial.run_id for outcome in outcomes]
            yield outcomes


def run(directory: Path, built: Content) -> tuple[list[str], Any]:
    executor = Counting()
    world = Model(lambda: None)
    assert not runner.run(
        parse(built), directory, world, executor, Unwatched(), resume=True
    )
    return executor.ran, json.loads((directory / "manifest.json").read_text())


def test_runs_traces_and_plan_name_their_point(tmp_path: Path) -> None:
    ran, found = run(tmp_path, content())
    assert len(ran) == len(found["runs"]) == len(found["plan"]) == 4 * 2 * 2
    names = [point["point"] for point in found["points"]]
    assert found["factors"] == [
        {"name": "load", "levels": ["0.5", "0.8"]},
        {"name": "share", "levels": ["few", "none"]},
    ]
    for each in found["runs"]:
        number = names.index(each["point"])
        name = f"p{number:03d}-b{each['block']:03d}-{each['arm']}-t0"
        assert each["run_id"] == name
        assert (tmp_path / each["requests"]).name == f"{name}.parquet"
    stored = {(each["point"], each["block"]): each for each in found["traces"]}
    assert set(stored) == {(name, block) for name in names for block in (0, 1)}
    for each in found["runs"]:
        trace = stored[each["point"], each["block"]]
        assert each["trace_sha256"] == trace["sha256"]
        assert each["counts"]["sent"] == trace["requests"]
        assert (tmp_path / trace["file"]).exists()
    offered = [
        [each["offered_per_s"] for each in point["classes"]]
        for point in found["points"]
    ]
    assert offered[0] == pytest.approx([50, 450])
    assert found["points"][0]["window_ns"] == [0, 50_000_000]


def test_without_a_sweep_there_is_one_point_without_a_name(tmp_path: Path) -> None:
    built = content()
    del built["sweep"]
    _, found = run(tmp_path, built)
    assert [(each["point"], each["levels"]) for each in found["points"]] == [("", {})]
    assert found["factors"] == []
    assert {each["run_id"] for each in found["runs"]} == {
        f"b00{block}-{arm}-t0" for block in (0, 1) for arm in ("fifo", "priority.x")
    }
    assert [each["file"] for each in found["traces"]] == [
        "traces/block-000.parquet",
        "traces/block-001.parquet",
    ]


def test_points_that_differ_in_no_traffic_share_their_traces(tmp_path: Path) -> None:
    key = "broker.set.queued.max.requests"
    entries = [{"levels": {"n": n}, "set": {key: int(n)}} for n in ("2", "3")]
    _, found = run(tmp_path, listed(*entries))
    assert len(found["traces"]) == 4
    assert len(list((tmp_path / "traces").iterdir())) == 2


def renamed(built: Content) -> None:
    built["sweep"]["factors"][0]["name"] = "rho"
    built["sweep"]["factors"][1]["levels"][0]["name"] = "1-in-10"


def turned(built: Content) -> None:
    for factor in built["sweep"]["factors"]:
        factor["levels"].reverse()


def written_otherwise(built: Content) -> None:
    built["arms"][0]["set"] = built["arms"][1]["set"] = built["broker"].pop("set")


def judged_otherwise(built: Content) -> None:
    built["workload"]["warmup_s"] = 0.01
    built["workload"]["traffic"][0]["slo_ms"] = 3.0
    built["limits"] = {"retries": 7}
    built["analysis"] = {"alpha": 0.01}
    built["experiment"].update(title="other", baseline="priority.x")
    built["virtual"] = {"other_slice_us": 3.0}
    built["arms"][0]["factors"] = {"reader": "own"}


@pytest.mark.parametrize("edit", [renamed, turned, written_otherwise, judged_otherwise])
def test_settings_without_effect_on_rows_repeat_no_trial(
    tmp_path: Path, edit: Callable[[Content], None]
) -> None:
    first, before = run(tmp_path, content())
    changed = content()
    edit(changed)
    again, after = run(tmp_path, changed)
    assert (len(first), again) == (16, [])
    counted = [each for each in after["runs"] if each["valid"]]
    assert {each["run_id"] for each in counted} == {
        each["run_id"] for each in before["runs"]
    }
    expected = {(c.point.name, c.block, c.arm.name) for c in plan_of(changed)}
    assert {(r["point"], r["block"], r["arm"]) for r in counted} == expected
    assert {(each["point"], each["block"]) for each in after["traces"]} == {
        (point, block) for point, block, _ in expected
    }


def plan_of(built: Content) -> list[Any]:
    return list(runner.plan(planned_points(parse(built))))


def test_a_new_level_adds_its_points_and_repeats_none(tmp_path: Path) -> None:
    run(tmp_path, content())
    more = content()
    more["sweep"]["factors"][0]["levels"].insert(
        0, {"name": "0.3", "scale": {CONTROL: 0.3, PRODUCE: 0.3}}
    )
    ran, found = run(tmp_path, more)
    assert len(ran) == 8
    assert all(each["valid"] for each in found["runs"])
    new = {each["run_id"] for each in found["runs"] if "load=0.3" in each["point"]}
    assert new == set(ran)
    files = [each["requests"] for each in found["runs"]]
    assert len(files) == len(set(files)) == 24


def test_an_arm_that_a_factor_leaves_alone_has_runs_at_each_point(
    tmp_path: Path,
) -> None:
    key = "arms.priority.x.set.doorkeeper.priority.ageing.ms"
    entries = [{"levels": {"ms": ms}, "set": {key: int(ms)}} for ms in ("5", "50")]
    ran, found = run(tmp_path, listed(*entries))
    assert len(ran) == 8
    assert len({each["cell"] for each in found["runs"]}) == 8
    again, _ = run(tmp_path, listed(*reversed(entries)))
    assert again == []


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("experiment", "seed", 4),
        ("workload", "duration_s", 0.04),
        ("limits", "drain_s", 0.5),
        ("model", "switch_us", 5.0),
        ("broker", "set", {"queued.max.requests": 51}),
    ],
)
def test_edited_settings_with_an_effect_on_rows_are_refused(
    tmp_path: Path, table: str, key: str, value: object
) -> None:
    run(tmp_path, content())
    changed = copy.deepcopy(content())
    changed.setdefault(table, {})[key] = value
    with pytest.raises(ExperimentError, match=f"{table}.{key}.* recorded, "):
        run(tmp_path, changed)
    found = json.loads((tmp_path / "manifest.json").read_text())
    assert all(each["valid"] for each in found["runs"])


def test_a_changed_arm_is_refused(tmp_path: Path) -> None:
    run(tmp_path, content())
    changed = content()
    changed["arms"][1]["model"] = {"misclassified": 0.1}
    with pytest.raises(ExperimentError, match=r"arms\[1\].model.misclassified"):
        run(tmp_path, changed)
