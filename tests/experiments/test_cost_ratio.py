"""A machine that is not the one that was calibrated: found, told, measured anew."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from doorkeeper.at_work import calibration as at_work
from experiments.design import calibration
from experiments.design.calibration import Calibration
from experiments.design.config import Experiment, parse
from experiments.load.trace import Trace
from experiments.records.cost_ratio import DRIFTED, cost_ratio, drifted
from experiments.running import runner
from experiments.running.executors.sequential import Sequential
from experiments.running.runner import Drifted
from experiments.worlds.world import RunFiles, RunResult, Trial
from tests.experiments.test_capacity import CONTENT
from tests.experiments.test_runner import FakeWorld, good
from tests.experiments.unwatched import Unwatched

COSTS = {"control": {"mean_us": 200.0}, "bulk": {"mean_us": 1000.0}}
INCIDENT = Path("experiments/configs/kafka-4453.toml")
TRAFFIC = ["control", "bulk"] * 20


def calibrated() -> Experiment:
    content = {"source": "a test", "costs": COSTS}
    return parse(CONTENT).with_machine(Calibration.model_validate(content))


def rows() -> pa.Table:
    """Return requests of which every fifth failed."""
    number = np.arange(len(TRAFFIC))
    outcome = np.where(number % 5 == 0, "error", "ok")
    return pa.table({"request_id": number, "outcome": outcome})


def test_the_cpu_of_all_that_was_answered_is_divided() -> None:
    there, table = calibrated(), rows()
    answered = [TRAFFIC[it] for it in range(40) if it % 5]
    calibrated_s = sum(COSTS[entry]["mean_us"] for entry in answered) / 1e6
    found = cost_ratio("kafka", there, table, TRAFFIC, 1.5 * calibrated_s)
    assert found == pytest.approx(1.5)
    assert cost_ratio("kafka", there, table, TRAFFIC, None) is None


def test_nothing_is_reported_where_nothing_was_measured() -> None:
    assert cost_ratio("live", parse(CONTENT), rows(), TRAFFIC, 1.0) is None
    assert cost_ratio("virtual", calibrated(), rows(), TRAFFIC, 1.0) is None


def test_one_broker_of_a_cluster_is_not_held_against_all_of_its_requests() -> None:
    content = tomllib.loads(INCIDENT.read_text(encoding="utf-8"))
    content["machine"] = {
        "source": "a test",
        "costs": {
            entry["name"]: {"mean_us": 1} for entry in content["workload"]["traffic"]
        },
    }
    assert cost_ratio("live", parse(content), rows(), TRAFFIC, 1.0) is None


@pytest.mark.parametrize(
    ("ratio", "counts"),
    [(None, True), (0.499, False), (0.5, True), (2.0, True), (2.01, False)],
)
def test_a_baseline_beyond_the_band_does_not_count(
    ratio: float | None, counts: bool
) -> None:
    there = calibrated()
    assert there.limits.cost_band == 2.0
    said = drifted(there, "fifo", ratio)
    assert (said == "") is counts
    # Of another arm it may be the arm's own doing.
    assert drifted(there, "priority", ratio) == ""


# ---- what a run does about it -------------------------------------------------------


def drifting(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
    """Answer all, and find the baseline's requests too cheap."""
    result = good(trial, trace, out)
    if trial.arm.name != "fifo":
        return result
    return replace(result, valid=False, reason=f"{DRIFTED}: ...", cost_ratio=0.3)


def test_a_machine_that_drifted_ends_the_experiment(tmp_path: Path) -> None:
    world = FakeWorld(drifting)
    with pytest.raises(Drifted, match=f"fifo-t[1-9]: {DRIFTED}"):
        runner.run(
            calibrated(),
            tmp_path,
            world,
            Sequential(world),
            Unwatched(),
            resume=False,
        )
    found = json.loads((tmp_path / "manifest.json").read_text())
    tried = [run for run in found["runs"] if run["arm"] == "fifo"]
    # Tried again as any other run that does not count, and nothing after that.
    assert len(tried) == 1 + calibrated().limits.retries
    assert {run["cost_ratio"] for run in tried} == {0.3}
    assert not any(run["valid"] for run in tried)


class Machine:
    """Is calibrated, and drifts in the first ``drifts`` runs after a calibration."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, drifts: int) -> None:
        self.calibrations = 0
        self.runs: list[tuple[str, bool]] = []
        self._drifts = drifts
        monkeypatch.setattr(at_work, "_measure", self._measure)

    def _measure(self, *_: Any) -> Calibration:
        self.calibrations += 1
        content = {"source": f"number {self.calibrations}", "costs": COSTS}
        return Calibration.model_validate(content)

    def run(self, experiment: Experiment, *, resume: bool) -> bool:
        assert experiment.machine is not None
        self.runs.append((experiment.machine.source, resume))
        if len(self.runs) <= self._drifts:
            raise Drifted("it cost something else")
        return True


def run_there(
    machine: Machine, directory: Path, given: Path | None = None, *, resume: bool
) -> bool:
    return at_work.on_machine(
        parse(CONTENT).with_world("live"),
        directory,
        given,
        Console(quiet=True),
        machine.run,
        resume=resume,
    )


def test_a_machine_that_drifted_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, drifts=1)
    assert run_there(machine, tmp_path, resume=False)
    assert machine.runs == [("number 1", False), ("number 2", True)]
    assert calibration.read(tmp_path / at_work.FILE).source == "number 2"


def test_a_machine_that_never_keeps_still_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, drifts=10)
    with pytest.raises(Drifted):
        run_there(machine, tmp_path, resume=True)
    assert len(machine.runs) == machine.calibrations == 3


def test_a_calibration_that_is_given_is_not_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, given = Machine(monkeypatch, drifts=1), tmp_path / "given.json"
    content = {"source": "given", "costs": COSTS}
    calibration.write(Calibration.model_validate(content), given)
    with pytest.raises(Drifted):
        run_there(machine, tmp_path / "run", given, resume=False)
    assert machine.calibrations == 0
    assert given.exists()
